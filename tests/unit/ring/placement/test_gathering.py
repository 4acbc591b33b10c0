"""Gathering at rest: neighbouring partitions come together step by step. The oracle counts windows one by one."""

import math
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.admin.plan.simulate import demands
from evenlane.ring.placement.placement import PlacementError, gather, place
from evenlane.ring.placement.simple import place_in_ranges, place_in_turn
from evenlane.ring.placement.strategy import PlacementNode
from evenlane.ring.placement.zones import place_in_zones
from tests.unit.ring.placement.test_fleets import Fleet, blast_radius

NODES = [f"node-{number}" for number in range(9)]


def count_touched(plan):
    """The nodes that each window of P / 10 partitions touches, summed over all windows."""
    width = max(1, len(plan) // 10)
    return sum(len({plan[(start + at) % len(plan)] for at in range(width)}) for start in range(len(plan)))


def steps_of(nodes, loads, plan, **options):
    """The plans that follow, until there is nothing left to gather."""
    while plan := gather(nodes, loads, dict(enumerate(plan)), **options):
        yield plan


def count_moves(one, other):
    return sum(before != after for before, after in zip(one, other, strict=True))


def heaviest(plan, loads):
    carried = Counter()
    for owner, load in zip(plan, loads, strict=True):
        carried[owner] += load
    return max(carried.values())


@st.composite
def scattered(draw, loads):
    """(nodes, loads, plan): a plan that needs no repair, made from present owners without any order."""
    nodes, listed = NODES[: draw(st.integers(5, 6))], draw(loads)
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    return nodes, listed, place(nodes, listed, {each: chance.choice(nodes) for each in range(len(listed))})


even_loads = st.lists(st.floats(1.0, 2.0), min_size=120, max_size=140)
any_loads = st.lists(st.sampled_from([0.0, 1.0, 3.7, 50.0, 1000.0]), min_size=5, max_size=80)


@given(st.one_of(scattered(even_loads), scattered(any_loads)))
@settings(max_examples=40, deadline=None)
def test_each_step_lowers_the_reach_by_few_moves(case):
    """P13: so gathering ends, whatever the loads. Between its steps no other plan has anything to move."""
    nodes, loads, plan = case
    most = max(2, len(loads) // len(nodes))
    for step in steps_of(nodes, loads, plan):
        assert 0 < count_moves(plan, step) <= most
        assert count_touched(step) < count_touched(plan)
        assert step == place(nodes, loads, dict(enumerate(step)))
        plan = step


@pytest.mark.parametrize("seed", range(10))
def test_run_that_costs_more_than_it_gains_is_left(seed):
    """P13: on a small fleet, partitions that make room for a run often touch more windows than it saves."""
    chance = random.Random(seed)
    loads = [chance.uniform(1.0, 2.0) for _ in range(20)]
    plan = place(NODES[:6], loads, {each: chance.choice(NODES[:6]) for each in range(20)})
    for step in steps_of(NODES[:6], loads, plan):
        assert count_touched(step) < count_touched(plan)
        plan = step


@given(scattered(even_loads))
@settings(max_examples=15, deadline=None)
def test_each_step_keeps_the_load_even(case):
    """P13, E6: 1.05 of the mean holds throughout, and at the end the reach is near that of a plan from nothing."""
    nodes, loads, plan = case
    bound = 1.05 * math.fsum(loads) / len(nodes) * (1 + 1e-9)
    for step in steps_of(nodes, loads, plan):
        plan = step
        assert heaviest(plan, loads) <= bound
    assert count_touched(plan) <= 1.3 * count_touched(place(nodes, loads, {}))


def test_many_partitions_per_node_are_gathered():
    """P13: 42 of them, dealt in turn. Each step has about 1,800 swaps of each node to choose from."""
    loads = [1.0 + (number * 7919 % 13) / 13 for number in range(256)]
    plan = place(NODES[:6], loads, {number: NODES[number % 6] for number in range(256)})
    for step in steps_of(NODES[:6], loads, plan):
        assert 0 < count_moves(plan, step) <= 256 // 6
        assert count_touched(step) < count_touched(plan)
        plan = step
    assert count_touched(plan) <= 1.05 * count_touched(place(NODES[:6], loads, {}))


@given(scattered(any_loads), st.randoms())
@settings(max_examples=40, deadline=None)
def test_step_depends_on_the_facts_alone(case, chance):
    """Z2: the next leader goes on in the same way, whatever the order of what it reads."""
    nodes, loads, plan = case
    present = list(enumerate(plan))
    chance.shuffle(present)
    shuffled = chance.sample(nodes, len(nodes))
    assert gather(nodes, loads, dict(enumerate(plan))) == gather(shuffled, loads, dict(present))


def restarted(nodes, partitions, seed):
    """A fleet after all of its nodes have left and come back, and its largest projects."""
    fleet = Fleet(nodes, partitions, seed=seed)
    for name in list(fleet.nodes):
        fleet.leave(name)
        fleet.nodes.append(name)
        fleet.replan()
    largest = [each for each in demands(3000, partitions, seed, "consecutive") if each.groups >= each.spread]
    return fleet, largest


def on_average(fleet, listed):
    shares = blast_radius(fleet, listed)
    return sum(shares) / len(shares)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("nodes", "partitions", "most"),
    [(8, 128, 0.24), (20, 320, 0.165), pytest.param(50, 800, 0.145, marks=pytest.mark.full)],
)
def test_restarted_fleet_is_gathered(nodes, partitions, most, seed):
    """P13: as near to N / 10 + 1 nodes as a plan from nothing, at 1.05 of balance throughout. The control is the
    fleet before.
    """
    fleet, largest = restarted(nodes, partitions, seed)
    assert on_average(fleet, largest) > 0.38
    moved = 0
    for step in steps_of(fleet.nodes, fleet.loads, fleet.plan):
        moved += count_moves(fleet.plan, step)
        fleet.plan = step
        assert fleet.evenness() <= 1.05
    assert on_average(fleet, largest) <= most
    assert moved <= partitions
    assert not fleet.replan()


def test_join_costs_what_it_did_before():
    """E6: a gathered fleet has as much room for a further node as one that was placed at once."""
    fleet, _ = restarted(8, 128, 1)
    fleet.plan = [*steps_of(fleet.nodes, fleet.loads, fleet.plan)][-1]
    assert len(fleet.join()) <= 1.1 * 128 / 9
    assert fleet.evenness() <= 1.05


@pytest.mark.parametrize("change", [Fleet.join, lambda fleet: fleet.leave("node-3")], ids=["join", "leave"])
def test_single_change_gains_too_little_per_move(change):
    """P13: after it, half of all partitions would move for a few per cent."""
    fleet = Fleet(50, 800)
    change(fleet)
    assert None is gather(fleet.nodes, fleet.loads, dict(enumerate(fleet.plan)))


def test_zones_stay_as_they_are():
    """C2, P13: partitions move within their zones."""
    fleet = Fleet(21, 336)
    nodes = [PlacementNode(name, f"zone-{number % 3}") for number, name in enumerate(fleet.nodes)]
    zone_of = dict(nodes)
    scattered_plan = random.Random(1).choices(fleet.nodes, k=336)
    before = place(nodes, fleet.loads, dict(enumerate(scattered_plan)), place_in_zones)
    *_, after = steps_of(nodes, fleet.loads, before, strategy=place_in_zones)
    assert [zone_of[name] for name in before] == [zone_of[name] for name in after]
    assert count_touched(after) < 0.7 * count_touched(before)


def ungathered(_request):
    return [NODES[number % 7] for number in range(70)]


def move_all(request):
    return [NODES[(number + bool(request.gather_moves)) % 7] for number in range(70)]


def move_always(request):
    return [NODES[(NODES.index(request.present.get(number, NODES[0])) + 1) % 7] for number in range(70)]


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (move_all, "moves more partitions (70) than `gather_moves` (10)"),
        (move_always, "moves partitions (70) although nothing has changed"),
    ],
)
def test_step_of_a_defective_strategy_is_refused(strategy, sentence):
    """C2."""
    plan = place(NODES[:7], [1.0] * 70, {}, strategy)
    with pytest.raises(PlacementError, match=re.escape(sentence)):
        gather(NODES[:7], [1.0] * 70, dict(enumerate(plan)), strategy)


@pytest.mark.parametrize("strategy", [ungathered, place_in_turn])
def test_strategy_need_not_gather(strategy):
    """C2: one that passes over `gather_moves` moves nothing."""
    plan = place(NODES[:7], [1.0] * 70, {}, strategy)
    assert None is gather(NODES[:7], [1.0] * 70, dict(enumerate(plan)), strategy)


def test_invalid_step_is_refused():
    """C2."""
    with pytest.raises(PlacementError, match="gave partition 0 to 'stranger'"):
        gather(NODES, [1.0] * 2, {0: NODES[0], 1: NODES[1]}, lambda _request: ["stranger", NODES[0]])


def test_only_consecutive_partitions_on_many_nodes_are_gathered():
    """P13: as in any plan."""
    in_turn = {number: NODES[number % 7] for number in range(70)}
    assert None is not gather(NODES[:7], [1.0] * 70, in_turn)
    assert None is gather(NODES[:7], [1.0] * 70, in_turn, layout="hashed")
    assert None is gather(NODES[:4], [1.0] * 70, {number: NODES[number % 4] for number in range(70)})


@pytest.mark.parametrize("missing", [{}, {0: "gone"}], ids=["no owner", "owner is gone"])
def test_partitions_without_an_owner_come_first(missing):
    """E6: they are left to a plan."""
    in_turn = dict(list(enumerate(place(NODES[:7], [1.0] * 70, {}, place_in_turn)))[1:])
    assert None is gather(NODES[:7], [1.0] * 70, in_turn | missing)


def test_ranges_are_together_already():
    plan = place(NODES[:7], [1.0] * 70, {}, place_in_ranges)
    assert None is gather(NODES[:7], [1.0] * 70, dict(enumerate(plan)))
