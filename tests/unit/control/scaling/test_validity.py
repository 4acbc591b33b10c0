"""Records that no node has written stop and mislead no decision (P10)."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.control.scaling.decision import ScalingState, decide
from evenlane.engine.control.scaling.need import explain_blocked
from evenlane.engine.control.scaling.policy import Bounds, Need, Observation, Rules
from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.engine.control.scaling.validity import check_records
from evenlane.ring.membership.records import LoadRecord, NodeRecord, RecordError, decode, encode
from tests.unit.control.scaling.observations import node

BOUNDS = Bounds(least=2, most=40)
A, B = node(cpu=0.4, used=20), node(cpu=0.5, used=60, wanted=200)

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-10, 10)
counts = st.integers(-(10**30), 10**30) | st.integers(-10, 200_000)
loads = st.builds(
    LoadRecord, used=numbers, wanted=numbers, handling=numbers, blocked=st.dictionaries(st.text(), counts, max_size=3)
)
records = st.builds(
    NodeRecord,
    cpu=numbers, cores=numbers, projects=counts, slots=counts, load=st.none() | loads,
    scaling=st.sampled_from(["leader", "off"]) | st.text(), leaving=st.booleans(),
)  # fmt: skip
policies = st.sampled_from([Rules(), Need(), Need(cpu_above=0)])
times = st.none() | st.floats(0, 1e10)
states = st.builds(
    ScalingState, times, times, st.integers(0, 1_000_000), st.none() | st.integers(0, 1_000_000),
    st.none() | st.integers(0, 100), st.floats(0, 1e10),
)  # fmt: skip


@given(policies, st.text() | st.just("c"), records, states)
def test_any_record_harms_at_most_itself(policy, name, record, state):
    """P10: either it doesn't count at all, or the decision is within the bounds, and its reason is short."""
    record = decode(NodeRecord, "nodes/c", encode(record))
    nodes, invalid = check_records({"a": A, "b": B, name: record})
    assert {"a", "b", name} == {*nodes, *invalid}
    seen = Observation({each: node for each, node in nodes.items() if node.is_fit}, 2, 128)
    decision = decide(policy, BOUNDS, seen, state, 1e9)
    assert BOUNDS.least <= decision.replicas <= BOUNDS.most
    assert len(decision.why) < 400
    assert len(explain_blocked(nodes)) < 4_000


ABSURD = [
    (NodeRecord(slots=-1), "slots isn't from 0 to 100000"),
    (NodeRecord(slots=10**12), "slots isn't from 0 to 100000"),
    (NodeRecord(projects=10**400), "projects isn't from 0 to 1e+09"),
    (NodeRecord(cpu=-0.5), "cpu isn't from 0 to 100000"),
    (NodeRecord(cpu=1e308), "cpu isn't from 0 to 100000"),
    (NodeRecord(cpu=math.nan), "cpu isn't from 0 to 100000"),
    (NodeRecord(scaling="x" * 1_000_000), "its scaling is none of off, leader, keda, hpa"),
    (NodeRecord(load=LoadRecord(wanted=-1e9)), "wanted isn't from 0 to 1e+09"),
    (NodeRecord(load=LoadRecord(used=1e308)), "used isn't from 0 to 100000"),
    (NodeRecord(load=LoadRecord(used=1.0, handling=1e-320)), "handling isn't 0, or from 1e-06 to 1e+09"),
    (NodeRecord(load=LoadRecord(blocked={"quota": 10, "x": -5})), "blocked isn't from 0 to 1e+15"),
    (NodeRecord(load=LoadRecord(blocked={"x" * 1_000: 5})), "blocked has more than wait reasons"),
]


@pytest.mark.parametrize(("record", "reason"), ABSURD, ids=[reason.partition(" ")[0] for _, reason in ABSURD])
def test_record_that_no_node_writes_is_named_and_the_others_count(record, reason):
    """P10."""
    assert ({"a": A}, {"c": reason}) == check_records({"a": A, "c": record})


def test_records_of_other_releases_count():
    """P10, U2: an older one has no slots, no load, and the share of one core."""
    assert ({"a": NodeRecord(cpu=12.5)}, {}) == check_records({"a": NodeRecord(cpu=12.5)})
    newer = NodeRecord(load=LoadRecord(blocked={"a_new_reason": 7}))
    assert ({"a": newer}, {}) == check_records({"a": newer})


@pytest.mark.parametrize(
    "fields",
    [
        {"at": 1e300},
        {"desired": -1},
        {"desired": 10**30},
        {"low_most": 10**30},
        {"changed_at": -1.0},
        {"replicas": "x"},
    ],
)
def test_absurd_record_of_a_leader_is_not_valid(fields):
    """P10: the next look writes it again."""
    raw = msgspec.json.encode({"mode": "keda", "by": "a", "at": 1.0, **fields})
    with pytest.raises(RecordError, match=f"scaling is not valid: .*{next(iter(fields))}"):
        decode(ScalingRecord, "scaling", raw)
