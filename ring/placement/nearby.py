"""Which nodes a partition is near to: those that hold its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY
from evenlane.ring.placement.reach import added_reach, window_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.ring.placement.assignment import Assignment
    from evenlane.ring.placement.preference import Preference

GATHERED_FROM = 5  # nodes
_NEAR = 16  # nodes considered


class Nearby:
    """For each partition the nodes whose reach grows least by it, then those that its ring prefers.

    Without `gathers`, only the ring counts: if a project's partitions are no neighbours, or with few nodes. Two of
    four nodes, which a project would have at least, are half of all, and its bursts couldn't use the others.
    """

    def __init__(self, made: Assignment, ring: Preference, *, gathers: bool) -> None:
        self._made = made
        self._ring = ring
        self._partitions = len(made.weights)
        self.gathers = gathers
        self.width = window_width(self._partitions)

    def nodes(self, partition: int) -> Sequence[int]:
        if not self.gathers:
            return self._ring.near(partition)
        near = self.owners_around(partition, _NEAR)
        near.sort(key=lambda node: (self.added(node, partition), node))
        return [*near, *(node for node in self._ring.near(partition) if node not in near)]

    def added(self, node: int, partition: int) -> int:
        return added_reach(self._made.spots[node], partition, self._partitions, self.width)

    def neighbours(self, node: int) -> set[int]:
        """The owners of the partitions around those of the node."""
        found: set[int] = set()
        for partition in self._made.spots[node] if self.gathers else ():
            found.update(self.owners_around(partition, _NEAR // 2))
        return found

    def owners_around(self, partition: int, most: int) -> list[int]:
        """Up to `most` owners of partitions within a window's width, nearest first."""
        owner, found = self._made.owner, dict[int, None]()
        for distance in range(1, self.width + 1):
            for neighbour in (partition - distance, partition + distance):
                node = owner[neighbour % self._partitions]
                if node != NOBODY:
                    found[node] = None
            if len(found) >= most:
                break
        return list(found)[:most]
