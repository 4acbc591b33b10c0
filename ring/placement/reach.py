"""The reach of a node: how many windows of consecutive partitions touch it.

A project's slots are consecutive partitions, a *window* (ring/hashing.py). A node that holds neighbouring partitions is
touched by fewer windows than one whose partitions are scattered. Summed over the gaps between a node's partitions, the
number of windows of `width` partitions that touch it is sum(min(gap, width)). So the sum over all nodes, divided by
the number of windows, is the mean number of nodes that work for a project of `width` slots: its blast radius (P13).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

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


def added_reach(spots: Sequence[int], partition: int, partitions: int, width: int) -> int:
    """By how much the reach grows if the node gets one more partition."""
    if not spots:
        return width
    at = bisect_left(spots, partition)
    below = (partition - spots[at - 1]) % partitions
    above = (spots[at % len(spots)] - partition) % partitions
    return min(below, width) + min(above, width) - min(below + above, width)
