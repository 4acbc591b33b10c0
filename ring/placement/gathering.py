"""Brings neighbouring partitions together, with few moves more than the plan needs anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.placement.assignment import NOBODY
from evenlane.ring.placement.reach import reach_change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.ring.placement.assignment import Assignment
    from evenlane.ring.placement.nearby import Nearby

_PARTNERS = 6  # nodes considered per partition
_PASSES = 3
_EXTRA = 4  # one move more than needed for every four


class _Step(NamedTuple):
    """A move or a swap; the least is the best."""

    change: int  # of the reach of its two nodes
    cost: int  # by how many moves the plan grows
    gifts: tuple[tuple[int, int], ...]  # (partition, node)


class Gathering:
    """Lowers the nodes' reach by moves and swaps, above all of partitions that change their owner anyway.

    All bounds of the two nodes of a step hold afterwards, and no load leaves the range of targets that was within it. A
    step that moves a partition away from its present owner is paid from a budget: a quarter of the moves that the plan
    needs, and none beyond a node's even share unless a node has gone. So a plan that moves nothing stays as it is.
    """

    def __init__(self, made: Assignment, nearby: Nearby) -> None:
        self._made = made
        self._nearby = nearby
        self._partitions = len(made.weights)
        self._budget = self._compute_budget()

    def run(self) -> None:
        for _ in range(_PASSES):
            if not sum(self._improve(partition) for partition in range(self._partitions)):
                return

    def _compute_budget(self) -> int:
        made = self._made
        moved = sum(owner != home for owner, home in zip(made.owner, made.home, strict=True))
        if NOBODY in made.home:
            return moved // _EXTRA
        return min(moved // _EXTRA, max(0, self._partitions // len(made.nodes) - moved))

    def _improve(self, partition: int) -> bool:
        if not self._is_candidate(partition):
            return False
        near = self._nearby.owners_around(partition, _PARTNERS)
        best = min((step for other in near for step in self._steps(partition, other)), default=None)
        if best is None:
            return False
        self._budget -= best.cost
        for moved, taker in best.gifts:
            self._made.give(moved, taker)
        return True

    def _is_candidate(self, partition: int) -> bool:
        """It may move, and a neighbour of it is elsewhere."""
        owner, node = self._made.owner, self._made.owner[partition]
        if self._budget <= 0 and self._made.home[partition] == node:
            return False
        return owner[partition - 1] != node or owner[(partition + 1) % self._partitions] != node

    def _steps(self, partition: int, other: int) -> Iterator[_Step]:
        """Steps that bring the partition to `other` and lower the reach."""
        made, node = self._made, self._made.owner[partition]
        for theirs in (NOBODY, *made.spots[other]) if other != node else ():
            cost = self._cost(partition, other) + self._cost(theirs, node)
            if cost > self._budget or not self._is_even(node, other, partition, theirs):
                continue
            change = self._change(node, partition, theirs) + self._change(other, theirs, partition)
            if change < 0:
                gifts = ((partition, other), (theirs, node))
                yield _Step(change, cost, gifts if theirs != NOBODY else gifts[:1])

    def _cost(self, partition: int, taker: int) -> int:
        home = NOBODY if partition == NOBODY else self._made.home[partition]
        return 0 if home == NOBODY else (taker != home) - (self._made.owner[partition] != home)

    def _is_even(self, node: int, other: int, given: int, got: int) -> bool:
        """Whether loads and numbers stay within their bounds if the nodes exchange these partitions."""
        made, bounds = self._made, self._made.bounds
        weight = made.weights[given] - (made.weights[got] if got != NOBODY else 0)
        loads = made.load[node], made.load[other]
        after = loads[0] - weight, loads[1] + weight
        if max(after) > max(*loads, bounds.high_target) or min(after) < min(*loads, bounds.low_target):
            return False
        if got == NOBODY and not (made.count(node) > bounds.even_least and made.count(other) < bounds.even_most):
            return False
        return not any(made.strain(node, given, got)) and not any(made.strain(other, got, given))

    def _change(self, node: int, minus: int, plus: int) -> int:
        return reach_change(self._made.spots[node], minus, plus, self._partitions, self._nearby.width)
