"""Policy `need`: nodes for waits that nodes end, and for no others."""

import pytest

from evenlane.engine.control.scaling.decision import ScalingState, decide
from evenlane.engine.control.scaling.need import explain_blocked
from evenlane.engine.control.scaling.policy import Bounds, Need
from evenlane.ring.membership.records import NodeRecord
from tests.unit.control.scaling.observations import node, observe

NEED = Need()
BOUNDS = Bounds(least=2, most=50)
NEVER = ScalingState()


def decided(*nodes, need=NEED, bounds=BOUNDS, state=NEVER, now=0.0, **seen):
    return decide(need, bounds, observe(*nodes, **seen), state, now)


def test_adds_all_nodes_that_the_demand_takes_at_once():
    """P10: 2 nodes of 64 slots, and a demand of 600."""
    decision = decided(*[node(used=64, wanted=300)] * 2)
    assert 600 * 1.1 / 64 < decision.replicas <= 600 * 1.1 / 64 + 2
    assert "600.0 of 128 slots would be used within the quotas, and p99 wait 2s needs 11 nodes" == decision.why


def test_adds_more_while_it_rests():
    """P10: the rest only delays removals."""
    state = ScalingState(changed_at=0.0, replicas=2)
    assert 2 < decided(*[node(used=64, wanted=300)] * 2, state=state, now=30.0).replicas


@pytest.mark.parametrize("reason", ["quota", "paused", "endpoint", "concurrency"])
def test_adds_none_for_messages_that_no_node_would_help(reason):
    """X6: a million of them, and the slots are half full."""
    busy = node(used=32, blocked={reason: 500_000})
    assert 2 == decided(busy, busy).replicas
    clause = f"messages wait for what no node can give: 1,000,000 for {reason}"
    assert clause == explain_blocked({"a": busy, "b": busy})


def test_keeps_the_cpu_below_the_threshold():
    """P10: handlers that compute fill the CPU before the slots."""
    decision = decided(*[node(cpu=0.99, used=4)] * 4)
    assert (5, True) == (decision.replicas, decision.why.startswith("the CPU of 3.96 nodes is used, and 5 nodes keep"))
    assert 4 == decided(*[node(cpu=0.99, used=4)] * 4, need=NEED._replace(cpu_above=0), now=1e9).replicas


def test_removes_after_the_rest_down_to_the_most_that_was_needed_meanwhile():
    """P10: 8 nodes, of which 3 are enough, with a busier minute in which it took 5."""
    calm, busier = [node(used=20)] * 8, [node(used=32)] * 8
    state = NEVER
    for now, nodes in ((0, calm), (300, busier), (590, calm)):
        decision = decided(*nodes, state=state, now=float(now))
        assert 8 == decision.replicas
        state = decision.state
    removed = decided(*calm, state=state, now=600.0)
    busier_takes = decided(*busier, state=NEVER, now=0.0, replicas=2).replicas
    assert busier_takes <= removed.replicas < 8


def test_a_busy_look_begins_the_rest_again():
    """P10."""
    calm, full = [node(used=20)] * 8, [node(used=56)] * 8
    state = decided(*calm, now=0.0).state
    state = decided(*full, state=state, now=500.0).state
    later = decided(*calm, state=state, now=700.0)
    assert (8, 8) == (later.replicas, decided(*calm, state=later.state, now=1_299.0).replicas)
    assert 8 > decided(*calm, state=later.state, now=1_300.0).replicas


def test_removes_none_while_a_node_says_nothing_of_its_load():
    """P10: it has just started, or is of an older release."""
    silent = NodeRecord(host="h", cpu=0.1)
    state = decided(*[node(used=5)] * 7, silent, now=0.0).state
    decision = decided(*[node(used=5)] * 7, silent, state=state, now=1e6)
    assert (8, True) == (decision.replicas, decision.why.endswith("; 1 node reports no load yet"))
    assert 8 < decided(*[node(used=64, wanted=100)] * 7, silent).replicas


def test_does_nothing_while_no_node_says_anything():
    """P10."""
    assert (3, "no node reports its load") == decided(NodeRecord(), replicas=3)[:2]


def test_reason_says_when_the_most_is_not_enough():
    """P10: otherwise nobody would raise it."""
    decision = decided(*[node(used=64, wanted=300)] * 2, bounds=Bounds(2, 4))
    assert (4, True) == (decision.replicas, decision.why.endswith(
        "p99 wait 2s needs at least 5 nodes; 4 is the most that scaling_max and the partitions allow"
    ))  # fmt: skip
    assert "the most" not in decided(*[node(used=64, wanted=300)] * 2, bounds=Bounds(2, 11)).why


def test_never_outside_the_bounds():
    """P10: however much is wanted, and however little."""
    assert 50 == decided(*[node(used=64, wanted=1e308)] * 2).replicas
    assert 9 == decided(*[node(used=64, wanted=1e6, cpu=1e308)] * 2, partitions=9).replicas
    state = decided(*[node()] * 3, now=0.0).state
    assert 2 == decided(*[node()] * 3, state=state, now=1e6).replicas


def test_small_nodes_bound_the_slots():
    """P10: while slots change from 64 to 16, the smaller number counts."""
    mixed = decided(node(used=10, slots=64), node(used=10, wanted=60, slots=16))
    assert decided(*[node(used=10, wanted=35, slots=16)] * 2).replicas == mixed.replicas > 2
