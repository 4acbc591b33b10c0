"""Places partitions without an owner."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenlane.ring.placement.assignment import Assignment
    from evenlane.ring.placement.nearby import Nearby
    from evenlane.ring.placement.preference import Preference

_LOAD = 8  # the weight of a run's load against its number of partitions


class Orphans:
    """Places the heaviest first, because light ones fit into the gaps that these leave.

    Each goes where its ring prefers, as long as enough is left for the nodes that have too little.
    """

    def __init__(self, made: Assignment, ring: Preference, nearby: Nearby) -> None:
        bounds = made.bounds
        targets = [bounds.target(jitter) for jitter in ring.jitters]
        second = [target + bounds.slack * 2 // 5 for target in targets]
        self._made = made
        self._ring = ring
        self._nearby = nearby
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
        if self._nearby.gathers:
            self._seat()
        for partition in self._queue:
            if self._made.owner[partition] != NOBODY:
                continue
            self._give(partition, self._choose_node(partition))

    def _seat(self) -> None:
        """Give the nodes without partitions runs of neighbouring orphans, each up to its target.

        The runs are in proportion to the targets. What doesn't fit is left to `place`.
        """
        made, targets = self._made, self._room[0][0]
        empty = sorted((node for node in made.nodes if not made.spots[node]), key=lambda node: self._ring.jitters[node])
        line = sorted(self._queue) if empty else []
        sizes = [made.weights[partition] * len(line) * _LOAD + self._left + 1 for partition in line]
        ends, total = list(accumulate(max(1, targets[node]) for node in empty)), sum(sizes)
        at = passed = 0
        for partition, size in zip(line, sizes, strict=True):
            while at + 1 < len(empty) and (2 * passed + size) * ends[-1] > 2 * ends[at] * total:
                at += 1
            passed += size
            if self._has_seat(empty[at], partition):
                self._give(partition, empty[at])

    def _has_seat(self, node: int, partition: int) -> bool:
        made, weight = self._made, self._made.weights[partition]
        fits = made.load[node] + weight <= self._room[0][0][node] or not made.load[node]
        return fits and made.count(node) < (made.bounds.roomy_most if weight else made.bounds.even_least)

    def _give(self, partition: int, node: int) -> None:
        lacked = self._lacks(node)
        self._made.give(partition, node)
        self._left -= self._made.weights[partition]
        self._missing -= lacked - self._lacks(node)

    def _lacks(self, node: int) -> int:
        return max(0, self._made.bounds.aim - self._made.load[node])

    def _choose_node(self, partition: int) -> int:
        weight = self._made.weights[partition]
        if weight and self._left <= self._missing:
            lacking = [node for node in self._nearby.nodes(partition) if 2 * self._lacks(node) >= weight]
            for node in self._roomy([*lacking, self._poorest()], weight, *self._room[1]):
                return node
        for loads, count in self._room:
            for node in self._roomy(self._nearby.nodes(partition), weight, loads, count):
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
