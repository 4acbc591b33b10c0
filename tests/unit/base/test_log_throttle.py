"""How much is said of what happens to messages: bounded by kind and in all, and the rest as a count by project."""

import pytest

from evenlane.engine.base.log_throttle import LogThrottle
from tests.support.until import until


@pytest.fixture
def sums():
    return []


def made(sums, of_kind=2, **tuning):
    return LogThrottle(of_kind, lambda *reported: sums.append(reported), **tuning)


async def test_some_of_a_kind_and_then_a_count_by_project(sums):
    some = made(sums)
    assert [True, True, False, False] == [some.may("a", "x") for _ in range(4)]
    assert some.may("a", "y")
    assert some.may("b", "x")
    some.stop()
    assert [(2, {"a": 2}, 0)] == sums


async def test_some_in_all_however_many_kinds_there_are(sums):
    """5,000 tenants that fail at once write no more than one."""
    some = made(sums)
    assert 100 == sum(some.may(f"p{number % 5_000}", f"kind {number}") for number in range(20_000))
    some.stop()
    [(count, projects, others)] = sums
    assert (19_900, 20) == (count, len(projects))
    assert count == others + sum(projects.values())


async def test_the_time_begins_anew_and_sums_up_by_itself(sums):
    some = made(sums, 1, every_s=0.01)
    assert [True, False] == [some.may("a") for _ in range(2)]
    await until(lambda: sums == [(1, {"a": 1}, 0)])
    assert some.may("a")
    some.stop()
    assert 1 == len(sums), "there is nothing more to sum up"


async def test_nothing_is_summed_up_where_all_was_said(sums):
    some = made(sums)
    some.stop()
    some.may("a")
    some.stop()
    some.stop()
    assert [] == sums
