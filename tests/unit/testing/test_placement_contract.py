"""The contract of placement strategies: those of Evenlane keep it, and each rule finds the defect that it is for."""

import itertools

import pytest

from evenlane.engine.testing.placement_contract import PlacementContract
from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.simple import place_in_ranges, place_in_turn
from evenlane.ring.placement.zones import place_in_zones


class TestBoundedRing(PlacementContract):
    """C2, Z2"""

    strategy = staticmethod(place_in_bounds)


class TestZones(PlacementContract):
    """C2, Z2"""

    strategy = staticmethod(place_in_zones)


class TestRanges(PlacementContract):
    """C2, Z2"""

    strategy = staticmethod(place_in_ranges)


class TestInTurn(PlacementContract):
    """C2, Z2"""

    strategy = staticmethod(place_in_turn)


def forget_one(request):
    return place_in_turn(request)[1:]


def place_on_dead(request):
    return [request.present.get(n, owner) for n, owner in enumerate(place_in_turn(request))]


def place_by_order(request):
    first = next(iter(request.present.values()), "")
    return [first if first in {n.name for n in request.nodes} else request.nodes[0].name] * len(request.loads)


def rotate(request):
    names = [node.name for node in request.nodes]
    return [
        names[(names.index(request.present[n]) + 1) % len(names)] if request.present.get(n) in names else owner
        for n, owner in enumerate(place_in_turn(request))
    ]


def clear_present(request):
    owners = place_in_bounds(request)
    request.present.clear()
    return owners


class Counting:
    """Gives another placement each time."""

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, request):
        call = next(self.calls)
        return [request.nodes[(n + call) % len(request.nodes)].name for n in range(len(request.loads))]


def move_all_at_rest(request):
    return rotate(request) if 0 < request.gather_moves < len(request.loads) else place_in_turn(request)


def swap_at_rest(request):
    owners = [request.present.get(number, name) for number, name in enumerate(place_in_turn(request))]
    if request.gather_moves and len(owners) > 1:
        owners[:2] = owners[1::-1]
    return owners


@pytest.mark.parametrize(
    ("strategy", "rule", "sentence"),
    [
        (forget_one, "test_each_partition_has_one_owner_that_lives", "0 owners"),
        (place_on_dead, "test_each_partition_has_one_owner_that_lives", "'gone', which are not among the nodes"),
        (Counting(), "test_equal_requests_give_equal_placements", "two placements of equal requests differ"),
        (place_by_order, "test_equal_requests_give_equal_placements", "two placements of equal requests differ"),
        (rotate, "test_owners_stay_if_nothing_has_changed", "partitions moved although nothing had changed"),
        (move_all_at_rest, "test_gathering_moves_few_partitions_and_ends", "partitions moved to be gathered"),
        (swap_at_rest, "test_gathering_moves_few_partitions_and_ends", "gathering hasn't ended after"),
        (clear_present, "test_request_is_not_changed", "the strategy changed its request"),
    ],
)
def test_defect_is_found(strategy, rule, sentence):
    """C2"""

    class Defective(PlacementContract):
        pass

    Defective.strategy = staticmethod(strategy)
    with pytest.raises(AssertionError, match=sentence):
        getattr(Defective(), rule)()
