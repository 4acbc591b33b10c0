"""The reach of a node: how many windows of consecutive partitions touch it.

A project's slots are consecutive partitions, a *window* (ring/hashing.py). A node that holds neighbouring partitions is
touched by fewer windows than one whose partitions are scattered. Summed over the gaps between a node's partitions, the
number of windows of `width` partitions that touch it is sum(min(gap, width)). So the sum over all nodes, divided by
the number of windows, is the mean number of nodes that work for a project of `width` slots: its blast radius (P13).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence


def window_width(partitions: int) -> int:
    """The widest window by default, in partitions (P13)."""
    return max(1, partitions // 10)


def reach(spots: Sequence[int], partitions: int, width: int) -> int:
    """The number of windows, out of `partitions`, that touch a node with the partitions `spots`, in rising order."""
    if not spots:
        return 0
    total = min(spots[0] + partitions - spots[-1], width)
    for at in range(1, len(spots)):
        gap = spots[at] - spots[at - 1]
        total += min(width, gap)
    return total


def added_reach(spots: Sequence[int], partition: int, partitions: int, width: int, *, without: int = NOBODY) -> int:
    """By how much the reach grows if the node gets one more partition, once it has given `without` away."""
    count = len(spots)
    if count <= (without != NOBODY):
        return width
    at = bisect_left(spots, partition)
    lower, upper = spots[at - 1], spots[at % count]
    if lower == without:
        lower = spots[at - 2]
    elif upper == without:
        upper = spots[(at + 1) % count]
    return _within((partition - lower) % partitions, (upper - partition) % partitions, width)


def removed_reach(spots: Sequence[int], partition: int, partitions: int, width: int) -> int:
    """By how much the reach falls if the node gives one of its partitions away."""
    count = len(spots)
    if count == 1:
        return width
    at = bisect_left(spots, partition)
    return _within((partition - spots[at - 1]) % partitions, (spots[(at + 1) % count] - partition) % partitions, width)


def reach_change(spots: Sequence[int], minus: int, plus: int, partitions: int, width: int) -> int:
    """The change of the reach if the node gives `minus` away and gets `plus`; each may be NOBODY."""
    change = added_reach(spots, plus, partitions, width, without=minus) if plus != NOBODY else 0
    return change - removed_reach(spots, minus, partitions, width) if minus != NOBODY else change


def _within(below: int, above: int, width: int) -> int:
    """What a partition adds to the reach between its two neighbours."""
    return min(below, width) + min(above, width) - min(below + above, width)
