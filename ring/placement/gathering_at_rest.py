"""Brings neighbouring partitions together while nothing else happens: a few moves of a long way, worked out anew for
each step.

The way leads to the placement that a plan from nothing would make. Which node has which run of it is free, so the nodes
are matched to the runs such that most partitions stay.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.placement.assignment import NOBODY
from evenlane.ring.placement.reach import reach, window_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.ring.placement.assignment import Assignment

_WORTH = 10  # a move must lower the reach by a tenth of a window's width, on average over the whole way


class _Step(NamedTuple):
    """An exchange with another node; the least is the best."""

    rank: float  # the change of the reach, minus half a window for each partition that comes to its target, per move
    got: int  # partition, or NOBODY
    given: int
    other: int  # node
    change: int  # of the reach of the two nodes


class GatheringAtRest:
    """Moves up to `most` partitions of a placement towards `target`, a placement of the same partitions whose nodes may
    have other names.

    Invariants: the sum of the nodes' reach falls with each node that is worked on, so repeated calls end, whatever
    the targets are. Each exchange leaves its two nodes within their bounds. `moves` counts partitions, those that move
    twice too.
    """

    def __init__(self, made: Assignment, target: Sequence[int], most: int) -> None:
        self._made = made
        self._partitions = len(made.weights)
        self._width = window_width(self._partitions)
        self._target = _match(made.owner, target, len(made.nodes))
        self._missing: list[list[int]] = [[] for _ in made.nodes]
        for partition, node in enumerate(self._target):
            if made.owner[partition] != node:
                self._missing[node].append(partition)
        self._most = most
        self.moves = 0

    def run(self) -> None:
        """Complete runs, those with the fewest missing partitions first, until `most` partitions have moved."""
        if not self._is_worthwhile():
            return
        incomplete = (node for node in self._made.nodes if self._missing[node])
        for node in sorted(incomplete, key=lambda node: (len(self._missing[node]), node)):
            self._complete(node)

    def _is_worthwhile(self) -> bool:
        """Whether the way is worth its moves. After a join, say, half of all partitions would move for little."""
        present = sum(self._reach(spots) for spots in self._made.spots)
        spots: list[list[int]] = [[] for _ in self._made.nodes]
        for partition, node in enumerate(self._target):
            spots[node].append(partition)
        gain = present - sum(map(self._reach, spots))
        return gain * _WORTH >= self._width * sum(map(len, self._missing)) > 0

    def _complete(self, node: int) -> None:
        """Exchange partitions until the node has its run, or `most` is reached; undo it if the reach hasn't fallen."""
        undo: list[tuple[int, int]] = []
        change = 0
        while step := min(self._steps(node, self._most - self.moves - len(undo)), default=None):
            change += step.change
            for partition, giver, taker in ((step.got, step.other, node), (step.given, node, step.other)):
                if partition != NOBODY:
                    undo.append((partition, giver))
                    self._made.give(partition, taker)
        if change < 0:
            self.moves += len(undo)
            return
        for partition, giver in reversed(undo):
            self._made.give(partition, giver)

    def _steps(self, node: int, most: int) -> Iterator[_Step]:
        """Exchanges by which the node gets a partition of its run, or gives one that isn't of it; of `most` moves."""
        made, target = self._made, self._target
        missing = [partition for partition in self._missing[node] if made.owner[partition] != node]
        surplus = [partition for partition in made.spots[node] if target[partition] != node]
        pairs = [(got, given, made.owner[got]) for got in missing for given in (NOBODY, *surplus)]
        pairs += [(NOBODY, given, target[given]) for given in surplus]
        before = {other: self._reach(made.spots[other]) for other in {node, *(pair[2] for pair in pairs)}}
        for got, given, other in pairs:
            moves = (got != NOBODY) + (given != NOBODY)
            if moves > most or not self._is_allowed(node, other, given, got):
                continue
            after = self._reach_after(node, given, got) + self._reach_after(other, got, given)
            change = after - before[node] - before[other]
            arrived = (got != NOBODY) + (given != NOBODY and target[given] == other)
            yield _Step((change - arrived * self._width / 2) / moves, got, given, other, change)

    def _is_allowed(self, node: int, other: int, given: int, got: int) -> bool:
        made = self._made
        return not any(made.strain(node, given, got)) and not any(made.strain(other, got, given))

    def _reach_after(self, node: int, minus: int, plus: int) -> int:
        spots = [each for each in self._made.spots[node] if each != minus]
        if plus != NOBODY:
            insort(spots, plus)
        return self._reach(spots)

    def _reach(self, spots: Sequence[int]) -> int:
        return reach(spots, self._partitions, self._width)


def _match(owners: Sequence[int], target: Sequence[int], nodes: int) -> list[int]:
    """The target with its nodes renamed so that many partitions have their owner already: the pair with most of them in
    common first. The best matching keeps 1 or 2 % more (docs/explanation/placement.md).
    """
    common = Counter(zip(owners, target, strict=True))
    named: dict[int, int] = {}
    free = dict.fromkeys(range(nodes))
    for owner, node in sorted(common, key=lambda pair: (-common[pair], pair)):
        if node not in named and owner in free:
            named[node] = owner
            del free[owner]
    for node in range(nodes):
        if node not in named:
            named[node] = free.popitem()[0]
    return [named[node] for node in target]
