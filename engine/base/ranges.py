"""Formats sets of numbers as ranges: `0-3,7,9-12`. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 500  # ranges, so that a log line stays below the 16 KiB at which container runtimes split lines


def format_ranges(numbers: Iterable[int], most: int = _MOST) -> str:
    """Format distinct numbers in ascending order. Beyond `most` ranges, only their count of numbers is given."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0])
    ]
    named = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:most])
    more = sum(map(len, runs[most:]))
    return f"{named} and {more} more" if more else named
