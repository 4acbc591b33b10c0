"""Where partitions go that nobody has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ring.assignment import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ring.assignment import Assignment
    from ring.preference import Preference


class Orphans:
    """Heaviest first, as light ones fit into what these leave.

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
            node = self._home(partition)
            lacked = self._lacks(node)
            self._made.give(partition, node)
            self._left -= self._made.weights[partition]
            self._missing -= lacked - self._lacks(node)

    def _lacks(self, node: int) -> int:
        return max(0, self._made.bounds.aim - self._made.load[node])

    def _home(self, partition: int) -> int:
        weight = self._made.weights[partition]
        if weight and self._left <= self._missing:
            poorest = self._poorest()
            if self._admits(poorest, weight, *self._room[1]):
                return poorest
        for loads, count in self._room:
            found = self._roomy(partition, loads, count)
            if found != NOBODY:
                return found
        return self._poorest()

    def _roomy(self, partition: int, loads: Sequence[int], count: int) -> int:
        """The first on the ring that has room, else the one with most room."""
        made, weight = self._made, self._made.weights[partition]

        def among(nodes: Iterable[int]) -> Iterable[int]:
            return (node for node in nodes if self._admits(node, weight, loads, count))

        first = next(iter(among(self._ring.near(partition))), NOBODY)
        if first != NOBODY:
            return first
        return min(
            among(made.nodes), key=lambda node: (made.load[node] - loads[node], made.count(node), node), default=NOBODY
        )

    def _admits(self, node: int, weight: int, loads: Sequence[int], count: int) -> bool:
        """Whether the node has room; what is too heavy for any goes to one that has no load."""
        made = self._made
        return made.count(node) < count and (weight == 0 or made.load[node] + weight <= max(loads[node], weight))

    def _poorest(self) -> int:
        made = self._made
        return min(made.nodes, key=lambda node: (made.load[node], made.count(node), node))
