"""When the leader gathers: after 5 minutes without a change of nodes or plans, and then every 30 s."""

import pytest

from evenlane.ring.membership.records import NodeRecord, Unreadable
from evenlane.ring.membership.rest import REST_NS, STEP_NS
from tests.unit.ring.membership.test_leader import FIT, LEAVING, NO_STORE, draft, settled


def gather(leader, now):
    made = leader.draft(["b", "a", "a", "b"], gathers=True)
    leader.on_written(now)
    return made


def test_gathering_is_due_after_rest():
    """P13."""
    leader = settled()
    assert REST_NS == leader.gathering_due()
    assert None is leader.due()


def test_steps_follow_one_another():
    """P13: a step is a plan with a generation of its own, and no reason to wait as long as after another one."""
    leader = settled()
    assert gather(leader, REST_NS).gathers
    assert REST_NS + STEP_NS == leader.gathering_due()


def test_steps_are_counted_until_the_next_disturbance():
    """C2: so that a strategy without an end is stopped."""
    leader = settled()
    gather(leader, REST_NS)
    leader.rest.wait(REST_NS + STEP_NS)
    assert 1 == leader.rest.steps
    leader.on_node_gone("b", 7)
    assert 0 == leader.rest.steps


def test_nothing_is_due_once_all_is_gathered():
    leader = settled()
    leader.rest.end()
    assert None is leader.gathering_due()
    leader.on_node_gone("b", 7)
    draft(leader, ["a"] * 4)
    leader.on_written(9)
    assert 9 + REST_NS == leader.gathering_due()


@pytest.mark.parametrize(
    "change",
    [
        lambda leader: leader.node("c", FIT, 5),
        lambda leader: leader.on_node_gone("b", 5),
        lambda leader: leader.on_load_change(5),
        lambda leader: leader.on_plan("a", None, 5),
        lambda leader: leader.draft(["b", "a", "a", "b"]),
    ],
    ids=["node comes", "node goes", "loads change", "plan is lost", "plan is being written"],
)
def test_no_gathering_while_a_plan_is_due(change):
    """P13."""
    leader = settled()
    change(leader)
    assert None is leader.gathering_due()


@pytest.mark.parametrize(
    "record",
    [LEAVING, NO_STORE, NodeRecord(unreadable={1: Unreadable("settle_log", 2)})],
    ids=["leaving", "no store", "unreadable"],
)
def test_no_gathering_while_a_node_cannot_own_partitions(record):
    """P13: it will come back, or go."""
    leader = settled()
    leader.node("b", record, 5)
    draft(leader, ["a"] * 4)
    leader.on_written(6)
    assert (None, None) == (leader.due(), leader.gathering_due())
    leader.node("b", FIT, 7)
    draft(leader, ["a"] * 4)
    assert 7 + REST_NS == leader.gathering_due()


def test_change_of_loads_that_moves_nothing_does_not_end_the_rest():
    """P13: or a cluster whose topics change often would never be gathered."""
    leader = settled()
    leader.on_load_change(REST_NS - 5)
    assert None is draft(leader, ["a", "b", "a", "b"])
    assert REST_NS == leader.gathering_due()
