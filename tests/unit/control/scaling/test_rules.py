"""Policy `rules`: the thresholds of row P10."""

import pytest

from evenlane.engine.control.scaling.decision import ScalingState, decide
from evenlane.engine.control.scaling.policy import Bounds, Need, Rules
from tests.unit.control.scaling.observations import node, observe

RULES = Rules()
BOUNDS = Bounds()
NEVER = ScalingState()


def decided(seen, rules=RULES, bounds=BOUNDS, state=NEVER, now=1e6):
    decision = decide(rules, bounds, seen, state, now)
    return decision.replicas, decision.why


def test_one_node_above_90_percent_adds_one():
    """P10: any of the nodes, and the sentence names it."""
    seen = observe(node(cpu=0.2), node(cpu=0.91), node(cpu=0.3))
    assert (4, "node b uses 91% of its CPU, more than 90%") == decided(seen)


def test_90_percent_is_not_above_it():
    """P10."""
    assert 3 == decided(observe(*[node(cpu=0.9)] * 3))[0]


def test_mean_above_50_projects_adds_one():
    """P10."""
    assert (4, "a node has 50.3 projects on average, more than 50") == decided(
        observe(node(projects=50), node(projects=50), node(projects=51))
    )
    assert 3 == decided(observe(*[node(projects=50)] * 3))[0]


def test_mean_below_2_projects_removes_one_if_there_are_more_than_2_nodes():
    """P10."""
    idle = [node(projects=1)] * 3
    assert (2, "a node has 1.0 projects on average, fewer than 2") == decided(observe(*idle))
    assert (2, "a node has 1.0 projects on average, fewer than 2; but 2 is scaling_min") == decided(observe(*idle[:2]))
    assert 3 == decided(observe(*[node(projects=2)] * 3))[0]


def test_none_is_removed_that_would_be_added_again():
    """P10: with few projects and busy nodes, the two thresholds would otherwise take turns for ever."""
    replicas, why = decided(observe(*[node(cpu=0.7, projects=1)] * 3))
    assert (3, True) == (replicas, why.endswith("; but one node fewer would put the others at 105% of their CPU"))
    assert 2 == decided(observe(*[node(cpu=0.47, projects=1)] * 3))[0]


def test_high_cpu_goes_before_few_projects():
    """P10: one project alone can fill a node."""
    assert 4 == decided(observe(*[node(cpu=0.95, projects=1)] * 3))[0]


def test_rests_for_10_minutes_after_a_change():
    """P10: in both directions."""
    busy, idle = [node(cpu=0.95)] * 3, [node(projects=1)] * 4
    first = decide(Rules(), BOUNDS, observe(*busy), NEVER, 1_000.0)
    assert 4 == first.replicas
    for nodes, then in ((busy, 5), (idle, 3)):
        seen = observe(*nodes, replicas=4)
        early = decide(Rules(), BOUNDS, seen, first.state, 1_599.0)
        assert (4, True) == (early.replicas, early.why.endswith("; it rests for another 1s"))
        assert then == decide(Rules(), BOUNDS, seen, early.state, 1_600.0).replicas


def test_never_above_the_most_nor_above_the_number_of_partitions():
    """P10: a further node would own no partition."""
    busy = [node(cpu=0.95)] * 4
    assert 4 == decided(observe(*busy), bounds=Bounds(most=4))[0]
    replicas, why = decided(observe(*busy, partitions=4))
    assert (4, True) == (replicas, "the number of partitions" in why)


def test_number_outside_the_bounds_is_corrected_without_a_rest():
    """P10."""
    rested = ScalingState(changed_at=1e6 - 1, replicas=1)
    assert (2, "1 node is outside the bounds, 2 to 100") == decided(observe(node(), replicas=1), state=rested)
    assert (5, "9 nodes are outside the bounds, 2 to 5") == decided(observe(*[node()] * 9), bounds=Bounds(most=5))


@pytest.mark.parametrize("policy", [RULES, Need()])
def test_number_of_0_switches_scaling_off(policy):
    """P10: as with a HorizontalPodAutoscaler. What somebody asks for later is kept for the rest."""
    off = decide(policy, BOUNDS, observe(node(cpu=0.97), replicas=0), ScalingState(changed_at=0.0, replicas=3), 1e6)
    assert (0, "0 nodes are asked for, which switches scaling off until somebody asks for one or more") == off[:2]
    on = observe(*[node(projects=1)] * 4)
    kept = decide(policy, BOUNDS, on, off.state, 1e6 + 30)
    assert 4 == kept.replicas
    assert 4 == decide(policy, BOUNDS, on, kept.state, 1e6 + 629).replicas
    assert 4 > decide(policy, BOUNDS, on, kept.state, 1e6 + 630).replicas


def test_change_by_somebody_else_counts_as_one():
    """P10: an operator who scales by hand isn't overruled at once."""
    idle = observe(*[node(projects=1)] * 6)
    kept = decide(Rules(), BOUNDS, idle, ScalingState(changed_at=0.0, replicas=4), 1e6)
    assert 6 == kept.replicas
    assert 6 == decide(Rules(), BOUNDS, idle, kept.state, 1e6 + 599).replicas
    assert 5 == decide(Rules(), BOUNDS, idle, kept.state, 1e6 + 600).replicas


def test_leader_whose_clock_was_ahead_delays_by_one_rest_at_most():
    """P10."""
    idle = observe(*[node(projects=1)] * 6)
    kept = decide(Rules(), BOUNDS, idle, ScalingState(changed_at=9e6, replicas=6), 1e6)
    assert [6, 5] == [kept.replicas, decide(Rules(), BOUNDS, idle, kept.state, 1e6 + 600).replicas]


def test_thresholds_are_settings_and_zero_is_off():
    """P10: all of these are settings."""
    seen = observe(*[node(cpu=0.4, projects=20)] * 3)
    assert 4 == decided(seen, Rules(cpu_above=0.3))[0]
    assert 4 == decided(seen, Rules(projects_above=19))[0]
    assert 2 == decided(seen, Rules(projects_below=21))[0]
    assert 3 == decided(observe(*[node(cpu=9.0, projects=900)] * 3), Rules(0, 0, 0))[0]
    assert 3 == decided(observe(*[node(projects=0)] * 3), Rules(0, 0, 0))[0]


def test_without_any_node_nothing_changes():
    """P10: a cluster whose nodes are all starting isn't scaled."""
    assert (5, "no node reports how busy it is") == decided(observe(replicas=5))
