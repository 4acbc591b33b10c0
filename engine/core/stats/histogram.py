"""Counts by how long something took. Pure."""

from __future__ import annotations

from typing import NamedTuple

_SECOND = 1_000_000_000

BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
    21_600.0, 86_400.0,
)  # fmt: skip
"""Upper bounds of the buckets, inclusive; beyond the last there is one more."""

BOUNDS = tuple(int(bound * _SECOND) for bound in BOUNDS_S)
"""The same in ns."""


class Counted(NamedTuple):
    """By bucket, not cumulative; and the sum of all in seconds."""

    counts: tuple[int, ...]
    seconds: float


class Histogram:
    """Of durations in ns: `counts[bisect_left(BOUNDS, ns)]`, and their `sum`. Whoever adds one for each message does so
    where it stands, as a call would cost more than that.
    """

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0

    def seen(self) -> Counted:
        return Counted(tuple(self.counts), self.sum / _SECOND)
