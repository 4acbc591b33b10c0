"""Repairs a placement that violates its bounds, with as few moves as possible."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.placement.assignment import NOBODY, is_better

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.ring.placement.assignment import Assignment
    from evenlane.ring.placement.nearby import Nearby

_PARTNERS = 16  # nodes considered in addition to those that the ring prefers
_NEAREST = 2  # partitions considered on each side of the desired weight


class _Step(NamedTuple):
    """A move or a swap; the least is the best. The first fields are the strain that it leaves."""

    load: int
    partitions: int
    rank: int  # on the ring for a move, the difference in weight for a swap
    gifts: tuple[tuple[int, int], ...]  # (partition, node)


class Repair:
    """Underfull nodes pull; then overfull ones shed or swap.

    The steps considered depend on the assignment alone. Once none is worthwhile, none will be if a plan is computed
    again from the result.
    """

    def __init__(self, made: Assignment, nearby: Nearby) -> None:
        self._made = made
        self._nearby = nearby

    def run(self) -> None:
        while sum(self._relieve(node) for node in self._list_strained()):
            pass

    def _list_strained(self) -> list[int]:
        """Nodes outside their bounds, emptiest first: partitions that they pull need no other place."""
        made = self._made
        strained = [node for node in made.nodes if any(made.strain(node))]
        return sorted(strained, key=lambda node: (made.pressure(node), node))

    def _relieve(self, node: int) -> bool:
        return self._pull(node) or self._exchange(node)

    # ---- underfull nodes

    def _pull(self, node: int) -> bool:
        """Fill a node that is below a bound up to its target, or the next small change would find it below the bound
        again.
        """
        made, bounds = self._made, self._made.bounds
        load = bounds.aim if made.load[node] < bounds.least_load else 0
        count = bounds.even_least if made.count(node) < bounds.least else 0
        moved = False
        while made.load[node] < load or made.count(node) < count:
            partition = self._partition_for(node)
            if partition == NOBODY:
                break
            made.give(partition, node)
            moved = True
        return moved

    def _partition_for(self, node: int) -> int:
        """A partition of about the weight that brings the node's load and its number of partitions to the
        mean together.
        """
        made, bounds = self._made, self._made.bounds
        missing = max(1, bounds.even_least - made.count(node))
        weight = max(0, bounds.level - made.load[node]) // missing
        donors = self._donors(node)
        for harmless in (True, False):
            for donor in donors:
                for offer in self._offers(donor, weight):
                    if harmless and self._would_rob(offer):
                        continue
                    if self._is_worth(offer, node) or self._would_even(offer, node):
                        return offer
        return NOBODY

    def _donors(self, node: int) -> list[int]:
        """Overfull nodes first, then those with the highest pressure."""
        made = self._made
        donors = [donor for donor in made.nodes if donor != node]
        adjacent = self._nearby.neighbours(node)
        return sorted(donors, key=lambda each: (-self._excess(each), each not in adjacent, -made.pressure(each), each))

    def _excess(self, node: int) -> int:
        made = self._made
        return made.strain(node).load if made.load[node] > made.bounds.cap else 0

    def _offers(self, donor: int, weight: int) -> list[int]:
        """First the partitions that make an overfull donor fit, then those nearest to the desired weight."""
        made, excess = self._made, self._excess(donor)
        offers = self._about(donor, weight)
        if excess:
            offers = list(dict.fromkeys((*offers, *self._about(donor, max(weight, excess)))))
            offers.sort(key=lambda each: (self._compute_rest(each), abs(made.weights[each] - weight), each))
        return offers

    def _compute_rest(self, partition: int) -> int:
        return self._made.strain(self._made.owner[partition], minus=partition).load

    def _would_rob(self, partition: int) -> bool:
        """Whether its owner would be underfull without it."""
        made, bounds = self._made, self._made.bounds
        donor = made.owner[partition]
        return made.load[donor] - made.weights[partition] < bounds.least_load or made.count(donor) <= bounds.least

    def _would_even(self, partition: int, node: int) -> bool:
        """Whether the move harms neither node, and the giver still has more than the taker."""
        made = self._made
        donor, piece = made.owner[partition], made.weighs(partition)
        if made.pressure(donor) - piece < made.pressure(node) + piece:
            return False
        return not any(made.strain(donor, minus=partition)) and not made.strain(node, plus=partition).load

    def _about(self, node: int, weight: int) -> list[int]:
        """Some of the node's partitions, nearest to this weight first."""
        held = self._made.held[node]
        at = bisect_left(held, (weight, NOBODY))
        near = held[max(0, at - _NEAREST) : at + _NEAREST]
        return [partition for _, partition in sorted(near, key=lambda item: (abs(item[0] - weight), item[1]))]

    # ---- overfull nodes, and those that no single partition helps

    def _exchange(self, node: int) -> bool:
        best = min(self._moves(node), default=None) or min(self._swaps(node), default=None)
        if best is None:
            return False
        for partition, taker in best.gifts:
            self._made.give(partition, taker)
        return True

    def _moves(self, node: int) -> Iterator[_Step]:
        made = self._made
        if made.load[node] <= made.bounds.level and made.count(node) <= made.bounds.most:
            return
        lightest = sorted(made.nodes, key=lambda each: (made.pressure(each), each))[:_PARTNERS]
        for _, partition in made.held[node]:
            for rank, taker in enumerate((*self._nearby.nodes(partition), *lightest)):
                if taker != node and self._is_worth(partition, taker):
                    giver, got = made.strain(node, minus=partition), made.strain(taker, plus=partition)
                    load, count = giver.load + got.load, giver.partitions + got.partitions
                    yield _Step(load, count, rank, ((partition, taker),))

    def _is_worth(self, partition: int, taker: int) -> bool:
        made, giver = self._made, self._made.owner[partition]
        before = made.strain(giver), made.strain(taker)
        after = made.strain(giver, minus=partition), made.strain(taker, plus=partition)
        return is_better(before, after, made.bounds.grain)

    def _swaps(self, node: int) -> Iterator[_Step]:
        """Steps that exchange two partitions."""
        made = self._made
        surplus = made.load[node] - made.bounds.level
        for other in self._partners(node, surplus):
            before = made.strain(node), made.strain(other)
            for weight, mine in made.held[node]:
                for theirs in self._about(other, max(0, weight - surplus)):
                    one, two = made.strain(node, mine, theirs), made.strain(other, theirs, mine)
                    if is_better(before, (one, two), made.bounds.grain):
                        difference = abs(weight - made.weights[theirs])
                        gifts = ((mine, other), (theirs, node))
                        yield _Step(one.load + two.load, one.partitions + two.partitions, difference, gifts)

    def _partners(self, node: int, surplus: int) -> list[int]:
        """The lightest nodes for an overfull node, the heaviest for an underfull one."""
        made = self._made
        sign = 1 if surplus > 0 else -1
        ranked = sorted(made.nodes, key=lambda other: (sign * made.load[other], other))
        return [other for other in ranked if other != node][:_PARTNERS]
