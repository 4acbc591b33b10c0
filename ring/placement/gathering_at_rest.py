"""Brings neighbouring partitions together while nothing else happens, a few moves at a time.

Each step computes its target again: the placement that a plan from nothing would make. Which node has which run of
partitions in it is free, so the nodes are matched to the runs such that most partitions stay.
"""

from __future__ import annotations

from collections import Counter
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.placement.assignment import NOBODY
from evenlane.ring.placement.reach import reach, reach_change, window_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenlane.ring.placement.assignment import Assignment

_GAIN_PER_MOVE = 6  # a move must lower the reach by N / 6 on average, whatever the number of partitions
_MOST_EXAMINED = 20_000  # candidates per step


class _Candidate(NamedTuple):
    """An exchange of a node with another one. The least bound is examined first."""

    bound: float  # its rank isn't less
    got: int  # partition, or NOBODY
    given: int
    other: int  # node


class _Exchange(NamedTuple):
    """An exchange that is allowed; the least is the best."""

    rank: float  # the change of the reach, minus half a window for each partition that comes to its target, per move
    got: int
    given: int
    other: int
    change: int  # of the reach of the two nodes


class GatheringAtRest:
    """Moves up to `most` partitions of a placement towards `target`, a placement of the same partitions whose nodes may
    have other names.

    Invariants: the sum of the nodes' reach falls with each node that is worked on, so repeated calls end, whatever
    the targets are. Each exchange leaves its two nodes within their bounds. `moves` counts partitions, those that move
    twice too. `_left` candidates may still be examined: a count, since with a clock two leaders would plan differently.
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
        self._left = _MOST_EXAMINED
        self.moves = 0

    def run(self) -> None:
        """Complete runs, those with the fewest missing partitions first, until `most` partitions have moved."""
        if not self._gains_enough():
            return
        incomplete = (node for node in self._made.nodes if self._missing[node])
        for node in sorted(incomplete, key=lambda node: (len(self._missing[node]), node)):
            if self.moves >= self._most or self._left <= 0:
                return
            self._complete(node)

    def _gains_enough(self) -> bool:
        """Whether the gain per move is high enough. After a join, say, half of all partitions would move for little."""
        present = sum(self._reach(spots) for spots in self._made.spots)
        spots: list[list[int]] = [[] for _ in self._made.nodes]
        for partition, node in enumerate(self._target):
            spots[node].append(partition)
        gain = present - sum(map(self._reach, spots))
        return gain * _GAIN_PER_MOVE >= len(self._made.nodes) * sum(map(len, self._missing)) > 0

    def _complete(self, node: int) -> None:
        """Exchange partitions until the node has its run, or `most` is reached; undo it if the reach hasn't fallen."""
        undo: list[tuple[int, int]] = []
        change = 0
        while found := self._find_best(node, self._most - self.moves - len(undo)):
            change += found.change
            for partition, giver, taker in ((found.got, found.other, node), (found.given, node, found.other)):
                if partition != NOBODY:
                    undo.append((partition, giver))
                    self._made.give(partition, taker)
        if change < 0:
            self.moves += len(undo)
            return
        for partition, giver in reversed(undo):
            self._made.give(partition, giver)

    def _find_best(self, node: int, most: int) -> _Exchange | None:
        """The best exchange by which the node gets a partition of its run, or gives one that isn't of it; of `most`
        moves.
        """
        best: _Exchange | None = None
        for candidate in merge(*self._list_candidates(node, most)):
            if self._left <= 0 or (best is not None and candidate.bound >= best.rank):
                break
            self._left -= 1
            exchange = self._examine(node, candidate)
            if exchange is not None and (best is None or exchange < best):
                best = exchange
        return best

    def _examine(self, node: int, candidate: _Candidate) -> _Exchange | None:
        """The exchange, or None if it would break a bound."""
        made, (_, got, given, other) = self._made, candidate
        if any(made.strain(node, given, got)) or any(made.strain(other, got, given)):
            return None
        change = self._change(node, given, got) + self._change(other, got, given)
        arrived = (got != NOBODY) + (given != NOBODY and self._target[given] == other)
        moves = (got != NOBODY) + (given != NOBODY)
        return _Exchange((change - arrived * self._width / 2) / moves, got, given, other, change)

    def _list_candidates(self, node: int, most: int) -> Iterator[Iterable[_Candidate]]:
        """Candidates of up to `most` moves in several sequences, each in rising order.

        The bound of a swap leaves out how the two partitions affect one another, and what the given one adds to the
        other node: both only make the rank greater, since reach counts windows.
        """
        made, target = self._made, self._target
        missing = [each for each in self._missing[node] if made.owner[each] != node]
        surplus = [each for each in made.spots[node] if target[each] != node]
        got = {
            each: self._change(node, NOBODY, each) + self._change(made.owner[each], each, NOBODY) for each in missing
        }
        given = sorted((self._change(node, each, NOBODY), each) for each in surplus)
        self._left -= len(got) + len(given)
        half = self._width / 2
        if most >= 1:
            yield sorted(_Candidate(change - half, each, NOBODY, made.owner[each]) for each, change in got.items())
            yield sorted(
                _Candidate(change + self._change(target[each], NOBODY, each) - half, NOBODY, each, target[each])
                for change, each in given
            )
        if most >= 2:
            by_target: dict[int, list[tuple[int, int]]] = {}
            for item in given:
                by_target.setdefault(target[item[1]], []).append(item)
            for each, change in got.items():
                yield self._list_swaps(each, change - 2 * half, by_target.get(made.owner[each], ()))
                yield self._list_swaps(each, change - half, given)

    def _list_swaps(self, got: int, change: float, given: Iterable[tuple[int, int]]) -> Iterator[_Candidate]:
        other = self._made.owner[got]
        for more, partition in given:
            yield _Candidate((change + more) / 2, got, partition, other)

    def _change(self, node: int, minus: int, plus: int) -> int:
        return reach_change(self._made.spots[node], minus, plus, self._partitions, self._width)

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
