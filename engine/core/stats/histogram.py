"""Histograms of durations. Pure."""

from __future__ import annotations

from typing import NamedTuple

_SECOND = 1_000_000_000

BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    21_600.0, 86_400.0,
)  # fmt: skip
"""Upper bounds of the buckets, inclusive; there is one more bucket beyond the last."""

BOUNDS = tuple(int(bound * _SECOND) for bound in BOUNDS_S)
"""The bounds in ns."""


class BucketCounts(NamedTuple):
    """Counts by bucket, not cumulative; and the sum of all durations in seconds."""

    counts: tuple[int, ...]
    seconds: float


class Histogram:
    """A histogram of durations in ns: `counts[bisect_left(BOUNDS, ns)]`, and their `sum`. It has no method to add a
    duration: the hot path does so inline, because a call would cost more than the addition.
    """

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0

    def copy_counts(self) -> BucketCounts:
        return BucketCounts(tuple(self.counts), self.sum / _SECOND)
