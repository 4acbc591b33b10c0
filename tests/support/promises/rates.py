"""Checks promises about the times at which handlers start: Q, V."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

SECOND = 1_000_000_000


def most_in_a_second(times: Sequence[int]) -> int:
    """Promise Q: the most starts in any half-open window of a second. `times` are sorted, in ns."""
    return max((bisect_left(times, at + SECOND) - place for place, at in enumerate(times)), default=0)


def longest_pause(times: Sequence[int], since: int, until: int) -> int:
    """Promise V: the longest time without a start, of those that overlap a span. `times` are sorted, all in ns."""
    first, last = bisect_right(times, since), bisect_right(times, until)
    near = times[max(0, first - 1) : last + 1]
    return max((later - sooner for sooner, later in pairwise(near)), default=until - since)


def is_rising(numbers: Sequence[int]) -> bool:
    """Promise Z5: each generation is newer than the one before it."""
    return all(sooner < later for sooner, later in pairwise(numbers))
