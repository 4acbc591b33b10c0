"""A node's share of a topic, by its partitions: the shares of all nodes add up to the whole (Q)."""

from math import isclose

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.node.queues.quota_share import NodeShare, node_share, share_of
from evenlane.quota.topics.topic import complete, parse_spec
from evenlane.ring.hashing import partition_of

PARTITIONS = 16
CLUSTER_CONFIG = ClusterConfig(partitions=PARTITIONS)


def _topic(fields):
    return complete(
        parse_spec(msgspec.json.encode(fields)), ClusterConfig(partitions=PARTITIONS, max_group_qps=1_000_000)
    )


topics = st.builds(
    lambda **fields: _topic({name: value for name, value in fields.items() if value is not None}),
    qps=st.floats(0.1, 10_000),
    groups=st.integers(1, 40),
    spread=st.integers(1, PARTITIONS),
    burst=st.integers(1, 50),
    concurrency=st.none() | st.integers(1, 50),
)
splits = st.lists(st.integers(0, 4), min_size=PARTITIONS, max_size=PARTITIONS)
projects = st.sampled_from(["acme", "hog", "still", "p-7"])


def _shares(project, whole, split):
    """The share of each node that has at least one group."""
    nodes = [{p for p in range(PARTITIONS) if split[p] == node} for node in range(5)]
    owns = [node_share(project, whole, (), mine.__contains__, CLUSTER_CONFIG) for mine in nodes]
    return [share_of(whole, own, own.part) for own in owns if own.groups]


@given(projects, topics, splits)
def test_rates_weights_and_groups_of_all_nodes_add_up(project, whole, split):
    """Q, E19: except that no weight is below the least weight of a topic."""
    shares = _shares(project, whole, split)
    assert whole.groups == sum(share.groups for share in shares)
    for name in ("qps", "reserve"):
        assert isclose(getattr(whole, name), sum(getattr(share, name) for share in shares), rel_tol=1e-9)
    for share in shares:
        assert isclose(share.weight, max(0.01, whole.weight * share.groups / whole.groups), rel_tol=1e-9)


def test_weight_of_a_share_has_a_minimum():
    """E19: one of eleven groups of a topic of 0.1 QPS, with a weight of 0.1."""
    whole = _topic({"qps": 0.1, "groups": 11})
    assert 0.01 == share_of(whole, NodeShare(1, 1 / 11), 1 / 11).weight


@given(projects, topics, splits)
def test_concurrency_is_rounded_up_by_less_than_one_per_node(project, whole, split):
    """Q: one message per node."""
    shares = _shares(project, whole, split)
    if whole.concurrency is not None:
        total = sum(share.concurrency for share in shares)
        assert whole.concurrency <= total < whole.concurrency + len(shares)


@given(projects, topics, splits)
def test_share_is_proportional_to_its_groups(project, whole, split):
    for share in _shares(project, whole, split):
        assert isclose(share.qps / share.groups, whole.qps / whole.groups, rel_tol=1e-9)
        assert whole.burst == share.burst, (
            "the credit of a late message follows the whole rate: evenlane.quota.rates.gcra.Pace"
        )


@given(projects, topics, st.sets(st.integers(0, PARTITIONS - 1)))
def test_share_counts_the_groups_of_its_partitions(project, whole, mine):
    """E2: as the producer places them."""
    found = sum(
        partition_of(project, group, whole.spread, PARTITIONS, "hashed") in mine for group in range(whole.groups)
    )
    assert (found, found / whole.groups) == node_share(project, whole, (), mine.__contains__, CLUSTER_CONFIG)


@given(projects, topics, st.sets(st.integers(0, 60), max_size=20), splits)
def test_draining_groups_share_the_quota(project, whole, groups, split):
    """Q, E3: they have at most half of the topic together, and the parts of all nodes add up to 1."""
    draining = sorted(group for group in groups if group >= whole.groups)
    nodes = [{p for p in range(PARTITIONS) if split[p] == node} for node in range(5)]
    owns = [node_share(project, whole, draining, mine.__contains__, CLUSTER_CONFIG) for mine in nodes]
    assert isclose(1.0, sum(own.part for own in owns))
    assert whole.groups + len(draining) == sum(own.groups for own in owns)
    active = sum(node_share(project, whole, (), mine.__contains__, CLUSTER_CONFIG).part for mine in nodes)
    assert isclose(1.0, active)


@given(projects, topics)
def test_share_of_all_partitions_is_the_topic(project, whole):
    own = node_share(project, whole, (), range(PARTITIONS).__contains__, CLUSTER_CONFIG)
    assert whole is share_of(whole, own, own.part)


@given(topics, st.just(0.0) | st.floats(0.01, 0.5))
def test_lender_keeps_its_slots(whole, part):
    """X1, W: otherwise it would use less, and lend more, until nothing is left."""
    own = NodeShare(max(1, whole.groups // 2), 0.5)
    half, lent = share_of(whole, own, 0.5), share_of(whole, own, part)
    assert (half.weight, half.reserve, half.concurrency) == (lent.weight, lent.reserve, lent.concurrency)
    assert isclose(lent.qps, whole.qps * part) or part == 0


def test_borrower_gets_slots_for_its_part():
    """W: also if it owns no group of the topic. Only a cap on concurrency stays."""
    whole = _topic({"qps": 100, "weight": 10, "reserve": 20, "concurrency": 8})
    share = share_of(whole, NodeShare(0, 0.0), 0.5)
    assert (50, 5, 10, 1) == (share.qps, share.weight, share.reserve, share.concurrency)


def test_node_without_a_group_has_a_minimal_rate():
    """Q, L: it may have a message of a group that isn't drained any more, which must not wait for ever."""
    whole = _topic({"qps": 100, "groups": 4})
    assert (1 / 60, 1) == (share_of(whole, NodeShare(0, 0.0), 0.0).qps, share_of(whole, NodeShare(0, 0.0), 0.0).groups)
