"""The log throttle bounds the entries per kind and in total, and counts the others by project."""

import pytest

from evenlane.engine.base.log_throttle import LogThrottle
from tests.support.until import until


@pytest.fixture
def sums():
    return []


def made(sums, of_kind=2, **tuning):
    return LogThrottle(of_kind, lambda *counts: sums.append(counts), **tuning)


async def test_entries_per_kind_are_bounded_and_counted_by_project(sums):
    throttle = made(sums)
    assert [True, True, False, False] == [throttle.may_log("a", "x") for _ in range(4)]
    assert throttle.may_log("a", "y")
    assert throttle.may_log("b", "x")
    throttle.stop()
    assert [(2, {"a": 2}, 0)] == sums


async def test_entries_of_all_kinds_are_bounded(sums):
    """5,000 projects that fail at once write at most 100 entries."""
    throttle = made(sums)
    assert 100 == sum(throttle.may_log(f"p{number % 5_000}", f"kind {number}") for number in range(20_000))
    throttle.stop()
    [(count, projects, others)] = sums
    assert (19_900, 20) == (count, len(projects))
    assert count == others + sum(projects.values())


async def test_summary_is_written_after_each_period(sums):
    throttle = made(sums, 1, every_s=0.01)
    assert [True, False] == [throttle.may_log("a") for _ in range(2)]
    await until(lambda: sums == [(1, {"a": 1}, 0)])
    assert throttle.may_log("a")
    throttle.stop()
    assert 1 == len(sums), "a summary without suppressed entries"


async def test_no_summary_is_written_without_suppressed_entries(sums):
    throttle = made(sums)
    throttle.stop()
    throttle.may_log("a")
    throttle.stop()
    throttle.stop()
    assert [] == sums
