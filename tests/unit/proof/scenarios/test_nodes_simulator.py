"""E3, Q: several nodes on the simulator, each with its part of the quotas, and with borrowed ones."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.arms import evenly, product
from evenlane.engine.proof.figures import worst_window
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, config_for, tenant
from evenlane.engine.proof.load.placement import Placement, place_groups
from evenlane.engine.proof.scenarios.skewed_quota import SHARED, STATIC, SkewedQuota
from evenlane.engine.proof.simulator.simulator import simulate
from evenlane.engine.proof.simulator.wire import NOT_DUE, Wire
from evenlane.ring.hashing import partition_of
from tests.oracles.examples import examples

MS = a.MILLISECOND
CLUSTER_CONFIG = config_for(3)


def load_of(counts, seconds=10, **spec):
    """Return a load of one topic with 12 groups, 4 on each node. `counts` are the messages per second for each node."""
    topic = tenant("acme", CLUSTER_CONFIG, **{"qps": 300, "groups": 12, "spread": 12, **spec})
    until = seconds * a.SECOND
    groups = place_groups(Load((topic,), until, CLUSTER_CONFIG), 3).groups_of(topic)
    come = [
        Arrival(at, 0, own[n % len(own)], 1, 10 * MS)
        for own, rate in zip(groups, counts, strict=True)
        for n, at in enumerate(a.uniform(rate, 0, until))
    ]
    return Load.of([topic], come, until, CLUSTER_CONFIG)


def per_node(trace, start, end):
    """Return the number of starts by node between two times, in seconds."""
    span = range(start * a.SECOND, end * a.SECOND)
    return Counter(node for node, at in zip(trace.node, trace.started, strict=True) if at in span)


def test_groups_are_placed_like_the_leader_places_partitions():
    topic = tenant("acme", CLUSTER_CONFIG, qps=300, groups=12, spread=12)
    where = place_groups(Load((topic,), 0, CLUSTER_CONFIG), 3)
    assert [4, 4, 4] == [len(own) for own in where.groups_of(topic)], "the only topic there is: in equal parts"
    assert CLUSTER_CONFIG.partitions == sum(map(len, where.partitions))
    for node, own in enumerate(where.groups_of(topic)):
        assert all(
            partition_of("acme", group, 12, CLUSTER_CONFIG.partitions, "hashed") in where.partitions[node]
            for group in own
        )


def test_trace_names_the_node():
    load = load_of([10, 10, 10], seconds=1)
    trace = simulate(load, product, 5, nodes=3)
    where = place_groups(load, 3)
    assert all(
        node == where.node_of(load.tenants[0], group) for node, group in zip(trace.node, load.group, strict=True)
    )
    assert {f"start on {node}" for node in range(3)} == {
        line.split(" ", 2)[2] for line in trace.lines() if "start" in line
    }


def test_node_borrows_unused_quota_of_others():
    """E3: of 300 QPS, two nodes use 20; the third asks for 240 and gets them, where its own part is 100."""
    load = load_of([240, 10, 10])
    alone = simulate(load, product, 50, 3, "static")
    assert per_node(alone, 0, 10)[0] <= 10 * 100 + 2, "the control: nobody lends"
    trace = simulate(load, product, 50, nodes=3)
    assert per_node(trace, 3, 10)[0] >= 7 * 235
    assert worst_window(trace, range(len(load))) <= 300 + load.tenants[0].topic.burst + 3


def test_lender_has_its_part_again_when_it_needs_it():
    """E3: node 1 has nothing to do for 5 s, then as much as its own part."""
    early = load_of([250, 0.1, 20])
    late = [each for each in load_of([0.1, 100, 0.1]) if each.at >= 5 * a.SECOND]
    load = Load.of(early.tenants, [*early, *late], early.until, CLUSTER_CONFIG)
    trace = simulate(load, product, 50, nodes=3)
    assert per_node(trace, 3, 5)[0] >= 2 * 230
    assert per_node(trace, 8, 10)[1] >= 2 * 97


@pytest.mark.parametrize("quotas", ["shared", "static"])
def test_no_window_exceeds_the_quota(quotas):
    """Q: over all nodes, qps + burst + one message per node in any 1 s, however the load moves."""

    @examples(15)
    @given(st.lists(st.tuples(*[st.sampled_from([0.1, 20, 90, 250])] * 3), min_size=2, max_size=3))
    def holds(phases):
        come = []
        for number, counts in enumerate(phases):
            begin, end = (3 * number * a.SECOND, 3 * (number + 1) * a.SECOND)
            come += [each for each in load_of(counts) if begin <= each.at < end]
        load = Load.of(load_of([1, 1, 1]).tenants, come, 3 * len(phases) * a.SECOND, CLUSTER_CONFIG)
        trace = simulate(load, product, 50, 3, quotas)
        assert worst_window(trace, range(len(load))) <= 300 + load.tenants[0].topic.burst + 3

    holds()


def test_whole_quota_on_each_node_exceeds_the_quota():
    """The control of Q."""
    load = load_of([250, 250, 250])
    assert worst_window(simulate(load, product, 50, 3, "whole"), range(len(load))) > 700


def test_equally_loaded_nodes_use_their_own_parts():
    load = load_of([90, 90, 90])
    trace = simulate(load, product, 50, nodes=3)
    assert Counter({0: 900, 1: 900, 2: 900}) == per_node(trace, 0, 10)


def test_skewed_load_moves_from_node_to_node():
    """80, 15 and 5 % of the load are for one node each, and the nodes change places."""
    scenario = SkewedQuota(0.2)
    arm = scenario.arms(1)[SHARED]
    where = place_groups(arm.load, 3)
    load = arm.aim(arm.load, where)
    third = load.until // 3
    for turn in range(3):
        nodes = Counter(where.node_of(load.tenants[0], each.group) for each in load if each.at // third == turn)
        total = sum(nodes.values())
        assert [0.80, 0.15, 0.05] == pytest.approx([nodes[(turn + k) % 3] / total for k in range(3)], abs=0.04)
    assert list(load.at) == list(scenario.arms(1)[STATIC].load.at), "the control gets the same"
    assert len(set(load.group)) == 12


def test_evenly_gives_each_node_the_same_load():
    topic = tenant("acme", CLUSTER_CONFIG, qps=300, groups=30)
    load = Load.of([topic], [Arrival(n, 0, n % 30, 1, MS) for n in range(300)], 300, CLUSTER_CONFIG)
    where = place_groups(load, 3)
    nodes = Counter(where.node_of(topic, group) for group in evenly(load, where).group)
    assert {100} == set(nodes.values())
    assert load is evenly(load, Placement(ClusterConfig(), [0] * 128, 1))


def test_wire_delivers_by_time_and_then_by_sending():
    wire, came = Wire(), []
    for at, name in ((5, "b"), (3, "a"), (5, "c"), (9, "d")):
        wire.call_at(at, lambda now, name=name: came.append((now, name)))
    assert 3 == wire.due
    wire.deliver(5)
    assert [(5, "a"), (5, "b"), (5, "c")] == came
    assert 9 == wire.due
    wire.deliver(9)
    assert NOT_DUE == wire.due
