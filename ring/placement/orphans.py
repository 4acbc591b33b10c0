"""Places partitions without an owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenlane.ring.placement.assignment import Assignment
    from evenlane.ring.placement.preference import Preference


class Orphans:
    """Places the heaviest first, because light ones fit into the gaps that these leave.

    Each goes where its ring prefers, as long as enough is left for the nodes that have too little.
    """

    def __init__(self, made: Assignment, ring: Preference) -> None:
        bounds = made.bounds
        targets = [bounds.target(jitter) for jitter in ring.jitters]
        second = [target + bounds.slack * 2 // 5 for target in targets]
        self._made = made
        self._ring = ring
        self._room = (
            (targets, bounds.even_most),
            (second, (bounds.even_most + bounds.roomy_most) // 2),
            (second, bounds.roomy_most),
            ([bounds.cap] * len(made.nodes), bounds.roomy_most),
        )
        orphans = [partition for partition, node in enumerate(made.owner) if node == NOBODY]
        self._queue = sorted(orphans, key=lambda partition: (-made.weights[partition], partition))
        self._left = sum(made.weights[partition] for partition in orphans)
        self._missing = sum(map(self._lacks, made.nodes))

    def place(self) -> None:
        for partition in self._queue:
            node = self._choose_node(partition)
            lacked = self._lacks(node)
            self._made.give(partition, node)
            self._left -= self._made.weights[partition]
            self._missing -= lacked - self._lacks(node)

    def _lacks(self, node: int) -> int:
        return max(0, self._made.bounds.aim - self._made.load[node])

    def _choose_node(self, partition: int) -> int:
        weight = self._made.weights[partition]
        if weight and self._left <= self._missing:
            poorest = self._poorest()
            if list(self._roomy([poorest], weight, *self._room[1])):
                return poorest
        for loads, count in self._room:
            for node in self._roomy(self._ring.near(partition), weight, loads, count):
                return node
            roomiest = self._roomiest(weight, loads, count)
            if roomiest != NOBODY:
                return roomiest
        return self._poorest()

    def _roomy(self, nodes: Iterable[int], weight: int, loads: Sequence[int], count: int) -> Iterator[int]:
        """The nodes that have room. A partition too heavy for any of them goes to one without load."""
        load, held = self._made.load, self._made.held
        for node in nodes:
            if len(held[node]) < count and (load[node] + weight <= loads[node] or not (load[node] and weight)):
                yield node

    def _roomiest(self, weight: int, loads: Sequence[int], count: int) -> int:
        made = self._made
        roomy = self._roomy(made.nodes, weight, loads, count)
        return min(roomy, key=lambda node: (made.load[node] - loads[node], made.count(node), node), default=NOBODY)

    def _poorest(self) -> int:
        made = self._made
        return min(made.nodes, key=lambda node: (made.load[node], made.count(node), node))
