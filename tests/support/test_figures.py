"""Tests of the comparison of surfaces with the ledger: it finds wrong figures, and only those."""

import pytest

from tests.support.figures import Measured, different_counts, different_rates

SECOND = 1_000_000_000
NOW = 100 * SECOND
LEDGER = {"handled": 80, "retried": 10, "dead": 5, "expired": 20, "backlog": 7}


def steady(rate, since=0, until=NOW):
    """The times of a steady load, in ns."""
    return [*range(since * SECOND, until, SECOND // rate)]


EVENTS = {"arriving": steady(100), "handled": steady(60), "failed": steady(20), "expired": steady(20)}
RIGHT = {"arriving": 100.0, "handled": 60.0, "failed": 20.0, "expired": 20.0}


def measured(seconds=20.0, **rates):
    return Measured(RIGHT | rates, NOW - SECOND // 10, NOW, [seconds])


def test_right_figures_pass():
    """X12: a surface need not have all figures."""
    assert [] == different_counts(LEDGER, {"why": {"backlog": 7}, "metrics": dict(LEDGER)})
    assert [] == different_rates(EVENTS, "why", measured(arriving=100.9, handled=59.5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"handled": 100, "expired": 0},  # expired messages count as handled
        {"dead": 25, "expired": 0},  # expired messages that are kept count as dead letters
        {"handled": 95},  # failed attempts count as handled
        {"retried": 0},  # a retry in place isn't counted
        {"backlog": 8},
    ],
)
def test_wrong_counts_are_found(wrong):
    """X12: each wrong count is named, with its surface."""
    found = different_counts(LEDGER, {"page": dict(LEDGER), "metrics": LEDGER | wrong})
    assert len(wrong) == len(found)
    assert all(sentence.startswith("metrics has") for sentence in found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"arriving": 102.0},
        {"handled": 80.0, "expired": 0.0},  # expired messages count as handled
        {"failed": 0.0, "handled": 80.0},  # so do failed attempts
        {"arriving": 110.0},  # flow from before the interval is in it: 22 s, divided by 20
    ],
)
def test_wrong_rates_are_found(wrong):
    """X12: each wrong rate is named."""
    assert len(wrong) == len(different_rates(EVENTS, "why", measured(**wrong)))


def test_rate_over_a_wrong_interval_is_found():
    """X12: the rate since the node's start isn't that of the interval."""
    began_late = {"arriving": steady(100, since=70)}
    right = Measured({"arriving": 100.0}, NOW, NOW, [20.0])
    since_start = Measured({"arriving": 3000 / 100}, NOW, NOW, [20.0])
    assert [] == different_rates(began_late, "why", right)
    assert 1 == len(different_rates(began_late, "why", since_start))


def test_burst_is_compared_with_all_intervals_that_the_surface_may_mean():
    """X12: a burst is in the interval, or no longer; the rate can't be anything else."""
    burst = {"arriving": [NOW - 21 * SECOND] * 500}
    for shown, wrong in ((25.0, 0), (0.0, 0), (26.0, 1)):
        assert wrong == len(different_rates(burst, "why", Measured({"arriving": shown}, NOW, NOW, [20.0])))
