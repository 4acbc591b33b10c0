"""Reasons of the moment, and backlogs that only seem to grow, aren't shown (X7, X8)."""

import random

import pytest

from evenlane.engine.core.stats.backlog_trend import BacklogTrend, is_stuck, lasting_reasons

SECOND = 1_000_000_000
ALL = {
    "quota": 1, "concurrency": 1, "headroom": 1, "higher_priority": 1, "fairness": 1, "not_due": 1, "ordered": 1,
    "endpoint": 1, "paused": 1, "no_owner": 1, "no_handler": 1, "handlers_busy": 2,
}  # fmt: skip
STATES = {"not_due", "endpoint", "paused", "no_owner", "no_handler"}


@pytest.mark.parametrize(
    ("oldest_s", "expected"),
    [(0.01, STATES), (0.999, STATES), (1.0, {*ALL}), (90.0, {*ALL}), (None, {*ALL}), (0.0, STATES)],
)
def test_reasons_of_the_moment_are_shown_from_one_second_on(oldest_s, expected):
    """X8: one message that has waited for 10 ms, with 8 of 64 slots in use, waits for nothing."""
    assert expected == lasting_reasons(ALL, oldest_s).keys()


def grows(sizes, every_s=1):
    trend = BacklogTrend()
    for place, backlog in enumerate(sizes):
        trend.note(place * every_s * SECOND, backlog)
    return trend.grows


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], False),
        ([5] * 60, False),
        ([*range(1, 30)], False),  # not yet for half a minute
        ([*range(1, 32)], True),
        ([*range(1, 12), *range(12, 1, -1), *range(1, 11)], False),
        ([*range(1, 32), 0], False),
        ([0] * 100, False),
        ([1, 0] * 60, False),
        ([100 + at + (at % 2) * 3 for at in range(32)], True),  # ups and downs of a second don't count
    ],
)
def test_backlog_grows_if_it_does_so_all_the_time(sizes, expected):
    assert expected == grows(sizes)


def test_rounds_may_be_long():
    assert grows([1, 2, 3, 4], every_s=25)
    assert not grows([1, 2, 3], every_s=25)


def test_noise_is_told_from_growth():
    """X7: at 100/s in and 70/s out a backlog nearly always counts as growing; at 100/s in and out it rarely does."""
    chance = random.Random(7)

    def run(leaving):
        backlog, sizes = 200, []
        for _ in range(31):
            backlog = max(0, backlog + round(chance.gauss(100, 10)) - leaving)
            sizes.append(backlog)
        return grows(sizes)

    assert sum(run(70) for _ in range(200)) > 190
    assert sum(run(100) for _ in range(200)) < 60


@pytest.mark.parametrize(
    ("leaving", "oldest_s", "expected"),
    [(0.0, 30.0, True), (0.0, 29.0, False), (0.0, None, False), (0.1, 90.0, False)],
)
def test_backlog_that_nothing_leaves_is_stuck(leaving, oldest_s, expected):
    """X7: nothing arrives, nothing leaves: it doesn't grow, and will never be gone."""
    assert expected == is_stuck(leaving, oldest_s)
