"""The strategy `zones`: a project's partitions are in all zones, each zone has its share, and little moves."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.admin.plan.simulate import demands
from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.load import partition_loads
from evenlane.ring.placement.placement import place
from evenlane.ring.placement.strategy import PlacementNode
from evenlane.ring.placement.zones import place_in_zones

P = 240


def fleet(*zones):
    """Nodes of these numbers in zones a, b, c, ..."""
    return [
        PlacementNode(f"{zone}-{n:02}", zone)
        for zone, count in zip("abcdef", zones, strict=False)
        for n in range(count)
    ]


def zones_of(plan):
    return [owner[0] for owner in plan]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.sampled_from([0.0, 3.0]))
@settings(max_examples=40)
def test_zone_has_the_share_of_its_nodes(zones, load):
    """C2: within a fiftieth, or one partition."""
    counted = Counter(zones_of(place(fleet(*zones), [load] * P, {}, place_in_zones)))
    for zone, nodes in zip("abcdef", zones, strict=False):
        share = P * nodes / sum(zones)
        assert abs(counted[zone] - share) <= max(1, share / 50)


@pytest.mark.parametrize("zones", [(7, 7, 7), (5, 5), (6, 6, 6, 6)])
def test_neighbours_are_in_different_zones(zones):
    """C2: any run of partitions is shared by the zones, so a project loses one zone's share of its own."""
    listed = demands(1_000, P, 1, "consecutive")
    plan = place(fleet(*zones), partition_loads(listed, P), {}, place_in_zones)
    shares = []
    for demand in listed:
        partitions = demand.partitions(P)
        if len(partitions) >= 2 * len(zones):
            counted = Counter(plan[each][0] for each in partitions)
            shares.append(max(counted.values()) / len(partitions))
    assert len(shares) > 100
    assert sum(shares) / len(shares) <= 1 / len(zones) + 0.15
    assert max(shares) < 1


@pytest.mark.parametrize("zone", ["", "only"])
def test_one_zone_is_as_none(zone):
    """C2: whether all nodes are in one zone or none has one, the placement is that of `bounded-ring`."""
    nodes, loads = [PlacementNode(f"node-{n}", zone) for n in range(6)], [float(n % 7) for n in range(P)]
    assert place(nodes, loads, {}, place_in_bounds) == place(nodes, loads, {}, place_in_zones)


def test_nodes_without_a_zone_are_a_zone_of_their_own():
    """C2"""
    nodes = [*fleet(4), *(PlacementNode(f"none-{n}") for n in range(4))]
    counted = Counter(zones_of(place(nodes, [1.0] * P, {}, place_in_zones)))
    assert 2 == len(counted)
    assert abs(counted["a"] - P / 2) <= P / 100


def test_zone_that_is_lost_leaves_other_zones_as_they_are():
    """C2, E14: only its partitions move, and some for balance; all come to lie on the zones that remain."""
    loads = [1.0 + n % 5 for n in range(P)]
    before = place(fleet(5, 5, 5), loads, {}, place_in_zones)
    after = place(fleet(5, 5), loads, dict(enumerate(before)), place_in_zones)
    lost = sum(owner.startswith("c") for owner in before)
    assert {"a", "b"} == set(zones_of(after))
    assert lost <= sum(one != other for one, other in zip(before, after, strict=True)) <= 1.5 * lost


def test_join_moves_about_its_share():
    """C2, E6: a node that joins one zone draws partitions from all of them."""
    loads = [1.0 + n % 5 for n in range(P)]
    before = place(fleet(5, 5, 5), loads, {}, place_in_zones)
    after = place(fleet(5, 6, 5), loads, dict(enumerate(before)), place_in_zones)
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 2 * P / 16
