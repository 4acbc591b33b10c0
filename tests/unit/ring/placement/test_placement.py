"""Placement as a function: its properties for any nodes, loads and present owners. For fleets see test_fleets.py."""

import math
import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.placement import PlacementError, place
from evenlane.ring.placement.simple import place_in_ranges, place_in_turn
from evenlane.ring.placement.zones import place_in_zones

STRATEGIES = [place_in_bounds, place_in_zones, place_in_ranges, place_in_turn]
NODES = [f"node-{number}" for number in range(12)]

nodes_ = st.lists(st.sampled_from(NODES), min_size=1, max_size=12, unique=True)
weights = st.one_of(
    st.just(0.0), st.just(1.0), st.floats(0, 10), st.sampled_from([0.0, 50.0, 1000.0]), st.floats(1e-6, 1e9)
)
loads_ = st.lists(weights, max_size=64)
presents = st.dictionaries(st.integers(0, 70), st.sampled_from([*NODES, "gone-1", "gone-2"]), max_size=64)


def carried(nodes, plan, loads):
    total = dict.fromkeys(nodes, 0.0)
    for owner, load in zip(plan, loads, strict=True):
        total[owner] += load
    return total


def counts(nodes, plan):
    counted = Counter(plan)
    return [counted[node] for node in nodes]


def kept(plan):
    return dict(enumerate(plan))


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(nodes=nodes_, loads=loads_, present=presents)
@settings(max_examples=60)
def test_every_partition_is_on_a_live_node(strategy, nodes, loads, present):
    """E6: whatever the previous owner, and whether it is gone."""
    plan = place(nodes, loads, present, strategy)
    assert len(loads) == len(plan)
    assert set(plan) <= set(nodes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(nodes=nodes_, loads=loads_, present=presents, random=st.randoms())
@settings(max_examples=60)
def test_plan_does_not_depend_on_the_order_of_inputs(strategy, nodes, loads, present, random):
    """E6, Z2: all leaders compute the same plan."""
    shuffled = dict(random.sample(sorted(present.items()), len(present)))
    assert place(nodes, loads, present, strategy) == place(random.sample(nodes, len(nodes)), loads, shuffled, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(nodes=nodes_, loads=loads_, present=presents)
@settings(max_examples=120)
@example(nodes=NODES[:3], loads=[1e6] * 2 + [1e-3] * 40, present={})
@example(
    nodes=NODES[:5], loads=[1000.0 / (number + 1) for number in range(64)], present=dict.fromkeys(range(64), "gone-1")
)
def test_placing_again_moves_nothing(strategy, nodes, loads, present):
    """E6: no endless moves, even if no plan is within the bounds."""
    plan = place(nodes, loads, present, strategy)
    assert plan == place(nodes, loads, kept(plan), strategy)


@given(nodes_, st.integers(0, 200), presents, st.sampled_from([0.0, 7.5]))
def test_equal_loads_give_equal_numbers(nodes, partitions, present, load):
    """E6: numbers of partitions differ by at most one, from any present owners."""
    counted = counts(nodes, place(nodes, [load] * partitions, present))
    assert max(counted) - min(counted) <= 1


def test_empty_node_gets_partitions_although_caps_are_kept():
    """E6: 3/3/3/3/0 keeps every cap of ceil(12 / 5)."""
    present = {partition: NODES[partition // 3] for partition in range(12)}
    counted = sorted(counts(NODES[:5], place(NODES[:5], [0.0] * 12, present)))
    assert [2, 2, 2, 3, 3] == counted


def test_new_node_gets_load_and_not_only_idle_partitions():
    """E6: although none of the 8 evenly loaded nodes is overloaded when the ninth joins."""
    loads = [10.0 if number % 4 == 0 else 0.0 for number in range(320)]
    before = place(NODES[:8], loads, {})
    after = place(NODES[:9], loads, kept(before))
    assert 0.85 <= carried(NODES[:9], after, loads)[NODES[8]] / (sum(loads) / 9) <= 1.13


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 7, 12])
def test_few_topics_are_even_in_load_and_in_number(nodes):
    """E6: as in most environments, 12 of 128 partitions have a load."""
    loads = [50.0 if number % 10 == 3 and number < 120 else 0.0 for number in range(128)]
    plan = place(NODES[:nodes], loads, {})
    loaded = [round(load / 50.0) for load in carried(NODES[:nodes], plan, loads).values()]
    assert max(loaded) - min(loaded) <= 1
    assert max(counts(NODES[:nodes], plan)) <= math.ceil(128 / nodes)


@given(st.integers(2, 12), st.lists(st.floats(1.0, 2.0), min_size=240, max_size=240), presents)
@settings(max_examples=40)
def test_plan_is_even_if_the_loads_allow_it(nodes, loads, present):
    """E6: with at least 20 partitions per node, none far heavier than others, from any present owners."""
    plan = place(NODES[:nodes], loads, {**kept(["gone-1"] * 240), **present})
    mean = math.fsum(loads) / nodes
    assert max(carried(NODES[:nodes], plan, loads).values()) <= 1.05 * mean * (1 + 1e-9)
    assert min(counts(NODES[:nodes], plan)) > 0


def test_overweight_partition_shares_its_node_with_idle_ones_only():
    """E6: the idle partitions are shared evenly."""
    loads = [1000.0, *[1.0] * 40, *[0.0] * 23]
    plan = place(NODES[:3], loads, {})
    total = carried(NODES[:3], plan, loads)
    assert 1000.0 + 0.05 * 1040 / 3 >= max(total.values())
    assert min(counts(NODES[:3], plan)) >= 10


@given(st.lists(st.floats(1.0, 100.0), min_size=128, max_size=128), st.randoms())
@settings(max_examples=30)
def test_small_change_of_loads_moves_nothing(loads, random):
    """E6: while no bound is exceeded, which the oracle checks."""
    plan = place(NODES[:4], loads, {})
    changed = [load * random.uniform(0.99, 1.01) for load in loads]
    total, mean = carried(NODES[:4], plan, changed).values(), math.fsum(changed) / 4
    assume(max(total) <= 1.049 * mean and min(total) >= 0.901 * mean)
    assume(all(32 - 5 <= count <= 32 + 5 for count in counts(NODES[:4], plan)))
    assert plan == place(NODES[:4], changed, kept(plan))


@given(st.integers(1, 8), st.sampled_from([0.0, 1.0]))
def test_surplus_nodes_stay_on_standby(partitions, load):
    """Z3."""
    plan = place(NODES, [load] * partitions, {})
    assert partitions == len(set(plan))
    standby = [node for node in NODES if node not in plan]
    assert plan == place([*plan, *standby[1:]], [load] * partitions, kept(plan))
    assert plan == place([*NODES, "node-x"], [load] * partitions, kept(plan))


def test_remaining_nodes_keep_their_partitions():
    """E6, E14: 9 of 12 nodes leave at once."""
    loads = [1.0 + number % 5 for number in range(240)]
    before = place(NODES, loads, {})
    after = place(NODES[:3], loads, kept(before))
    stayed = sum(one == other for one, other in zip(before, after, strict=True))
    assert stayed == sum(owner in NODES[:3] for owner in before)


def test_single_owner_keeps_its_share_when_nine_nodes_join():
    """E6: a tenth of the partitions."""
    loads = [1.0 + number % 3 for number in range(300)]
    plan = place(NODES[:10], loads, dict.fromkeys(range(300), NODES[0]))
    assert 27 <= counts(NODES[:1], plan)[0] <= 33


# ---- other strategies


def test_range_keeps_neighbours_together():
    """As Kafka's RangeAssignor; the first nodes have one more."""
    assert ["a", "a", "a", "b", "b", "c", "c"] == place(["c", "a", "b"], [1.0] * 7, {}, place_in_ranges)
    assert ["a", "b"] == place(["c", "a", "b"], [1.0] * 2, {}, place_in_ranges)


def test_round_robin_assigns_in_turn():
    """As Kafka's RoundRobinAssignor."""
    assert ["a", "b", "c", "a", "b"] == place(["c", "a", "b"], [1.0] * 5, {}, place_in_turn)


@given(nodes_, st.integers(0, 100))
def test_range_is_contiguous_and_even(nodes, partitions):
    plan = place(nodes, [0.0] * partitions, {}, place_in_ranges)
    assert all(one <= other for one, other in pairwise(plan))
    assert max(counts(nodes, plan)) - min(counts(nodes, plan)) <= 1


# ---- invalid input


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_nodes_give_no_owners(strategy):
    assert [None, None] == place([], [1.0, 2.0], {0: "gone"}, strategy)


def fail(_request):
    raise KeyError("rack")


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (fail, "the placement strategy failed: KeyError: 'rack'"),
        (lambda _request: ["a"], "must return a list of 2 owners, one per partition"),
        (lambda _request: None, "must return a list of 2 owners, one per partition"),
        (lambda _request: ["a", "c"], "gave partition 1 to 'c', which is not one of the nodes"),
        (lambda _request: ["a", None], "gave partition 1 to None, which is not one of the nodes"),
    ],
)
def test_defect_of_a_strategy_is_one_sentence(strategy, sentence):
    """C2: a strategy of another package may have any defect."""
    with pytest.raises(PlacementError, match=re.escape(sentence)):
        place(["a", "b"], [1.0, 2.0], {}, strategy)


@pytest.mark.parametrize("load", [-1.0, math.nan, math.inf])
def test_invalid_load_is_refused(load):
    with pytest.raises(ValueError, match="a load must be"):
        place(["a", "b"], [1.0, load], {})
