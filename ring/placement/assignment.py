"""The assignment of partitions to nodes while a placement is computed, and by how much bounds are violated."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.ring.placement.bounds import Bounds

NOBODY = -1


class Strain(NamedTuple):
    """The distance of a node from its bounds; 0: within."""

    load: int
    partitions: int


class Assignment:
    """Nodes and partitions are numbers.

    Invariant: `load[n]`, `held[n]` and `spots[n]` always match `owner`: `held` has (weight, partition) of the node's
    partitions, lightest first, `spots` has the partitions in rising order, and `load` is the sum of their weights.
    `home` is the present owner of each partition if it lives, and doesn't change.
    """

    def __init__(self, weights: Sequence[int], nodes: int, bounds: Bounds) -> None:
        self.weights = weights
        self.bounds = bounds
        self.nodes = range(nodes)
        self.owner = [NOBODY] * len(weights)
        self.home = [NOBODY] * len(weights)
        self.load = [0] * nodes
        self.held: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self.spots: list[list[int]] = [[] for _ in self.nodes]
        self._total = max(1, sum(weights))

    def count(self, node: int) -> int:
        return len(self.held[node])

    def give(self, partition: int, node: int) -> None:
        """Move the partition to the node, from its owner if it has one."""
        if self.owner[partition] != NOBODY:
            self.unassign(partition)
        self.owner[partition] = node
        self.load[node] += self.weights[partition]
        insort(self.held[node], (self.weights[partition], partition))
        insort(self.spots[node], partition)

    def unassign(self, partition: int) -> None:
        """Leave the partition without an owner."""
        node, weight = self.owner[partition], self.weights[partition]
        self.owner[partition] = NOBODY
        self.load[node] -= weight
        del self.held[node][bisect_left(self.held[node], (weight, partition))]
        del self.spots[node][bisect_left(self.spots[node], partition)]

    def pressure(self, node: int) -> int:
        """Load and number of partitions combined, each relative to its mean."""
        return self.load[node] * len(self.weights) + self.count(node) * self._total

    def weighs(self, partition: int) -> int:
        """A partition's contribution to a node's pressure."""
        return self.weights[partition] * len(self.weights) + self._total

    def strain(self, node: int, minus: int = NOBODY, plus: int = NOBODY) -> Strain:
        """The node's strain if it gave the partition `minus` away and received `plus`."""
        bounds, held = self.bounds, self.held[node]
        load, count = self.load[node], len(held)
        heaviest = held[-1][0] if held else 0
        if minus != NOBODY:
            load -= self.weights[minus]
            count -= 1
            if held[-1][1] == minus:
                heaviest = held[-2][0] if count else 0
        if plus != NOBODY:
            load += self.weights[plus]
            count += 1
            heaviest = max(heaviest, self.weights[plus])
        cap = max(bounds.cap, heaviest + bounds.slack)
        return Strain(max(0, load - cap, bounds.least_load - load), max(0, count - bounds.most, bounds.least - count))


def is_better(before: tuple[Strain, Strain], after: tuple[Strain, Strain], grain: int) -> bool:
    """Whether a move is worth it, by the strains of its two nodes.

    It is if the worse load improves by a grain, or both loads get within bounds; or if no load gets worse and the
    numbers of partitions improve. This order makes moves come to an end: the sorted strains of all nodes only fall.
    """
    load_before, load_after = _sort_key(before, 0), _sort_key(after, 0)
    worst = load_after[0] + grain if load_after[0] else 1
    if worst <= load_before[0]:
        return True
    return load_after <= load_before and _sort_key(after, 1) < _sort_key(before, 1)


def _sort_key(strains: tuple[Strain, Strain], part: int) -> tuple[int, int]:
    one, other = strains[0][part], strains[1][part]
    return (one, other) if one >= other else (other, one)
