"""Partitions with records of a newer release go to nodes that read them (U2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.membership.leader import GONE_NS, Leader
from evenlane.ring.membership.readers import place_on_readers
from evenlane.ring.membership.records import ETCD_RECORDS, SETTLE_LOG, NodeRecord, PlanRecord, Unreadable

NEW = NodeRecord(reads={SETTLE_LOG: 2, ETCD_RECORDS: 2})
OLDER = NodeRecord()  # a release that doesn't say what it reads


def old(*partitions, kind=SETTLE_LOG):
    """A node that couldn't take these partitions over."""
    return NodeRecord(
        reads={SETTLE_LOG: 1, ETCD_RECORDS: 1}, unreadable={each: Unreadable(kind, 2) for each in partitions}
    )


def test_unreadable_partition_goes_to_a_node_that_reads_it():
    nodes = {"a": old(1), "b": old(), "c": OLDER, "d": NEW}
    assert ["a", "d", "b", "c"] == place_on_readers(["a", "a", "b", "c"], nodes, {})


@pytest.mark.parametrize("other", [OLDER, old(), old(1), NodeRecord(leaving=True, reads=NEW.reads)])
def test_without_such_a_node_it_stays(other):
    """A node of a newer release may come; and this release may read the log again."""
    assert ["a", "a"] == place_on_readers(["a", "a"], {"a": old(1), "b": other}, {})


def test_each_kind_of_record_counts():
    logs = NodeRecord(reads={SETTLE_LOG: 2})
    assert ["a"] == place_on_readers(["a"], {"a": old(0, kind=ETCD_RECORDS), "b": logs}, {})
    assert ["b"] == place_on_readers(["a"], {"a": old(0), "b": logs}, {})


def test_it_stays_with_its_reader_in_later_plans():
    """Z1: each move is a pause."""
    nodes = {"a": old(0, 1, 2), "b": NEW, "c": NEW}
    assert ["c", "b", "c"] == place_on_readers(["a", "a", "c"], nodes, {0: "c", 1: "b", 2: "c"})


def test_readers_share_what_others_can_not_read():
    placed = place_on_readers(["a"] * 4, {"a": old(0, 1, 2, 3), "b": NEW, "c": NEW}, {})
    assert ["b", "b", "c", "c"] == sorted(placed)


formats = st.dictionaries(st.sampled_from([SETTLE_LOG, ETCD_RECORDS]), st.integers(1, 3))
unreadable = st.dictionaries(st.integers(0, 9), st.builds(Unreadable, st.sampled_from([SETTLE_LOG, "x"]), st.just(2)))
records = st.builds(NodeRecord, reads=formats, unreadable=unreadable, leaving=st.booleans())


@given(st.dictionaries(st.sampled_from("abcd"), records, min_size=1), st.data())
def test_only_reported_partitions_move_and_only_to_readers(nodes, data):
    """U2: no other partition is touched."""
    name = st.sampled_from([None, *nodes])
    placement = data.draw(st.lists(name, max_size=8))
    present = data.draw(st.dictionaries(st.integers(0, 9), name.filter(bool)))
    placed = place_on_readers(placement, nodes, present)
    reported = {each for record in nodes.values() for each in record.unreadable}
    assert len(placed) == len(placement)
    for partition, (before, after) in enumerate(zip(placement, placed, strict=True)):
        if before != after:
            assert partition in reported
            assert nodes[after].is_fit
            assert partition not in nodes[after].unreadable


def test_report_of_a_node_makes_a_plan_due():
    leader = Leader(2)
    leader.begin(1, {"a": PlanRecord(generation=1, partitions=[0, 1])}, {}, 0)
    leader.nodes({"a": old(), "b": NEW}, 0)
    leader.placement_input()
    leader.draft(["a", "a"])
    leader.on_written(0)
    assert leader.due() is None
    leader.node("a", old(1), 5)
    assert 5 + GONE_NS == leader.due()
    leader.placement_input()
    assert {"a": [0], "b": [1]} == leader.draft(["a", "a"]).plans
