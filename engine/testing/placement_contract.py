"""The contract of a placement strategy, as tests that pytest runs.

Subclass it in your tests:

    class TestRacks(PlacementContract):
        strategy = staticmethod(place_by_rack)

`docs/how-to/write-a-placement-strategy.md` explains each rule.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from evenlane.ring.placement.strategy import PlacementNode, PlacementRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evenlane.ring.hashing import Layout
    from evenlane.ring.placement.strategy import PlacementStrategy

_SIZES = ((1, 1), (1, 16), (3, 2), (3, 16), (5, 40), (8, 64))  # (nodes, partitions)
_GATHER_MOVES = 8
_MOST_STEPS = 200
_ZONES = ("", "a", "b", "c")


class PlacementContract:
    """What Evenlane relies on. `strategy` is the strategy under test; `seeds` are those of the random cases."""

    strategy: PlacementStrategy
    seeds: Sequence[int] = (1,)

    def test_each_partition_has_one_owner_that_lives(self) -> None:
        """Whatever the loads, and whoever owned the partitions before."""
        for request in self.requests():
            owners = self._place(request)
            alive = {node.name for node in request.nodes}
            _expect(len(owners) == len(request.loads), request, f"{len(owners)} owners")
            strangers = sorted({repr(owner) for owner in owners if owner not in alive})
            _expect(not strangers, request, f"partitions on {', '.join(strangers)}, which are not among the nodes")

    def test_equal_requests_give_equal_placements(self) -> None:
        """The next leader must come to the same plan, from the same facts in any order (Z2)."""
        for request in self.requests():
            random = Random(1)  # noqa: S311 - an order to try
            items = sorted(request.present.items())
            shuffled = _change(request, present=dict(random.sample(items, len(items))))
            same = self._place(request) == self._place(request) == self._place(shuffled)
            _expect(same, request, "two placements of equal requests differ")

    def test_owners_stay_if_nothing_has_changed(self) -> None:
        """A plan made from its own result moves nothing, or partitions would move for ever."""
        for request in self.requests():
            owners = self._place(request)
            again = self._place(_change(request, present=dict(enumerate(owners))))
            moved = sum(one != other for one, other in zip(owners, again, strict=True))
            _expect(not moved, request, f"{moved} partitions moved although nothing had changed")

    def test_gathering_moves_few_partitions_and_ends(self) -> None:
        """At rest, up to `gather_moves` partitions may move at a time. A strategy needn't move any."""
        for request in self.requests():
            owners = self._place(request)
            for _ in range(_MOST_STEPS):
                present = dict(enumerate(owners))
                after = self._place(replace(request, present=present, gather_moves=_GATHER_MOVES))
                moved = sum(one != other for one, other in zip(owners, after, strict=True))
                _expect(moved <= _GATHER_MOVES, request, f"{moved} partitions moved to be gathered")
                owners = after
                if not moved:
                    break
            else:
                _expect(False, request, f"gathering hasn't ended after {_MOST_STEPS} steps")

    def test_request_is_not_changed(self) -> None:
        """Its lists and mappings belong to the leader."""
        for request in self.requests():
            before = list(request.nodes), list(request.loads), dict(request.present)
            self._place(request)
            after = list(request.nodes), list(request.loads), dict(request.present)
            _expect(before == after, request, "the strategy changed its request")

    def requests(self) -> Iterator[PlacementRequest]:
        """The cases: fleets of several sizes, with and without zones, loads and present owners."""
        for seed in self.seeds:
            for nodes, partitions in _SIZES:
                yield from _cases(Random(f"{seed} {nodes} {partitions}"), nodes, partitions)  # noqa: S311 - test data

    def _place(self, request: PlacementRequest) -> list[str]:
        return list(type(self).strategy(request))


def _cases(random: Random, count: int, partitions: int) -> Iterator[PlacementRequest]:
    nodes = [PlacementNode(f"node-{number:02}", random.choice(_ZONES)) for number in range(count)]
    alike = [PlacementNode(node.name) for node in nodes]
    names = [*(node.name for node in nodes), "gone"]
    present = {each: random.choice(names) for each in range(partitions) if random.random() < 0.8}
    skewed = [random.lognormvariate(3, 1.5) for _ in range(partitions)]
    few = [50.0 if random.random() < 0.1 else 0.0 for _ in range(partitions)]
    one = [1e6, *[1e-3] * (partitions - 1)]
    for loads in ([0.0] * partitions, [7.5] * partitions, skewed, few, one):
        for fleet in (alike, nodes):
            for owners in ({}, present, dict.fromkeys(range(partitions), names[0])):
                layout: Layout = "hashed" if random.random() < 0.3 else "consecutive"
                yield PlacementRequest(nodes=fleet, loads=loads, present=owners, layout=layout)


def _change(request: PlacementRequest, present: Mapping[int, str]) -> PlacementRequest:
    return replace(request, present=present)


def _expect(holds: bool, request: PlacementRequest, otherwise: str) -> None:
    if not holds:
        nodes, partitions = len(request.nodes), len(request.loads)
        raise AssertionError(f"{otherwise} ({partitions} partitions on {nodes} nodes): {request}")
