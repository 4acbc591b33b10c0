"""A node's share of a topic: over all nodes the shares add up to the whole, and they follow the partitions."""

import asyncio
from math import isclose

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.node.queues.quota_share import NodeShare, node_share, share_of
from evenlane.engine.node.tuning import Tuning
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.quota.topics.topic import complete, parse_spec
from evenlane.ring.hashing import partition_of
from evenlane.ring.membership.records import HeldRecord
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic, turns
from tests.support.until import until

PARTITIONS = 16


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
    """The share of each node that has a group at least, by the groups that really lie there."""
    nodes = [{p for p in range(PARTITIONS) if split[p] == node} for node in range(5)]
    owns = [node_share(project, whole, (), mine.__contains__, PARTITIONS) for mine in nodes]
    return [share_of(whole, own, own.part) for own in owns if own.groups]


@given(projects, topics, splits)
def test_over_any_split_rates_weights_and_groups_add_up(project, whole, split):
    """Q, E19: nothing is lost, nothing doubled; but that no weight is below the least that a topic may have."""
    shares = _shares(project, whole, split)
    assert whole.groups == sum(share.groups for share in shares)
    for name in ("qps", "reserve"):
        assert isclose(getattr(whole, name), sum(getattr(share, name) for share in shares), rel_tol=1e-9)
    for share in shares:
        assert isclose(share.weight, max(0.01, whole.weight * share.groups / whole.groups), rel_tol=1e-9)


def test_a_share_of_a_weight_is_never_below_the_least():
    """E19: one of eleven groups of a topic of 0.1 QPS, which weighs as much."""
    whole = _topic({"qps": 0.1, "groups": 11})
    assert 0.01 == share_of(whole, NodeShare(1, 1 / 11), 1 / 11).weight


@given(projects, topics, splits)
def test_what_is_whole_is_rounded_up_by_less_than_one_a_node(project, whole, split):
    """Q: one message a node."""
    shares = _shares(project, whole, split)
    if whole.concurrency is not None:
        total = sum(share.concurrency for share in shares)
        assert whole.concurrency <= total < whole.concurrency + len(shares)


@given(projects, topics, splits)
def test_a_share_is_in_proportion_to_its_groups(project, whole, split):
    for share in _shares(project, whole, split):
        assert isclose(share.qps / share.groups, whole.qps / whole.groups, rel_tol=1e-9)
        assert whole.burst == share.burst, (
            "what it forgoes by being late goes by the whole rate: evenlane.quota.rates.gcra.Pace"
        )


@given(projects, topics, st.sets(st.integers(0, PARTITIONS - 1)))
def test_groups_are_counted_where_the_producer_puts_them(project, whole, mine):
    """E2: by looking at each one."""
    found = sum(partition_of(project, group, whole.spread, PARTITIONS) in mine for group in range(whole.groups))
    assert (found, found / whole.groups) == node_share(project, whole, (), mine.__contains__, PARTITIONS)


@given(projects, topics, st.sets(st.integers(0, 60), max_size=20), splits)
def test_groups_that_are_only_emptied_don_t_come_on_top(project, whole, emptied, split):
    """Q, E3: they have at most half of the topic together, and over all nodes the parts add up to 1."""
    draining = sorted(group for group in emptied if group >= whole.groups)
    nodes = [{p for p in range(PARTITIONS) if split[p] == node} for node in range(5)]
    owns = [node_share(project, whole, draining, mine.__contains__, PARTITIONS) for mine in nodes]
    assert isclose(1.0, sum(own.part for own in owns))
    assert whole.groups + len(draining) == sum(own.groups for own in owns)
    active = sum(node_share(project, whole, (), mine.__contains__, PARTITIONS).part for mine in nodes)
    assert isclose(1.0, active)


@given(projects, topics)
def test_all_partitions_are_the_topic_itself(project, whole):
    own = node_share(project, whole, (), range(PARTITIONS).__contains__, PARTITIONS)
    assert whole is share_of(whole, own, own.part)


@given(topics, st.just(0.0) | st.floats(0.01, 0.5))
def test_who_lends_keeps_its_slots(whole, part):
    """X1, W: or it would use less, and lend more, until nothing is left."""
    own = NodeShare(max(1, whole.groups // 2), 0.5)
    half, lent = share_of(whole, own, 0.5), share_of(whole, own, part)
    assert (half.weight, half.reserve, half.concurrency) == (lent.weight, lent.reserve, lent.concurrency)
    assert isclose(lent.qps, whole.qps * part) or part == 0


def test_who_borrows_has_the_slots_for_it():
    """W: above all if nothing of the topic is its own; only a cap stays what it is."""
    whole = _topic({"qps": 100, "weight": 10, "reserve": 20, "concurrency": 8})
    share = share_of(whole, NodeShare(0, 0.0), 0.5)
    assert (50, 5, 10, 1) == (share.qps, share.weight, share.reserve, share.concurrency)


def test_a_node_without_a_group_waits_for_a_loan_and_not_for_ever():
    """Q, L: a message of a group that isn't even emptied any more."""
    whole = _topic({"qps": 100, "groups": 4})
    assert (1 / 60, 1) == (share_of(whole, NodeShare(0, 0.0), 0.0).qps, share_of(whole, NodeShare(0, 0.0), 0.0).groups)


# ---- on a node


class RecordingScheduler(FairScheduler):
    """The product's, and the last rules of each project that it was told."""

    def __init__(self):
        super().__init__(8, 1_000_000)
        self.rules = {}

    def configure(self, project, rules, now, whole=None):
        self.rules[project] = rules
        super().configure(project, rules, now, whole)


@pytest.fixture
async def world():
    async with World(still=topic(qps=1_000), b=topic(qps=500)) as made:
        yield made


async def bare(world, **tuning):
    store = MemoryStore(world.server, "online")
    await store.open()
    node = Node(
        store,
        CLUSTER_CONFIG,
        Handler.of(world.note),
        world.topics.get,
        concurrency=8,
        settle_interval=0.02,
        scheduler=RecordingScheduler(),
        tuning=Tuning(**tuning),
    )
    world.nodes.append(node)
    await node.start()
    return node, node.scheduler.rules


def _group(project, partition):
    return next(group for group in range(10) if partition_of(project, group, 2, CLUSTER_CONFIG.partitions) == partition)


def _of(world, project, partition):
    """The rate of a project's groups on one partition."""
    whole = world.topics[project]
    own = _own(world, project, {partition})
    return share_of(whole, own, own.part).qps


def _own(world, project, mine):
    return node_share(project, world.topics[project], (), mine.__contains__, CLUSTER_CONFIG.partitions)


async def put(world, project, partition):
    return await world.put(project=project, group=_group(project, partition))


def _spread_out(world, project):
    return 0 < _own(world, project, {0}).groups < 10


async def test_a_share_grows_with_the_partitions_and_shrinks_with_them(world):
    """Q."""
    assert _spread_out(world, "still")
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    assert isclose(_of(world, "still", 0), rules["still"].qps)
    await node.owned.open(1, 2)
    await until(lambda: rules["still"].qps == 1_000)
    node.owned.stop_partition(1)
    await node.owned.hand_off(1, 2)
    await until(lambda: isclose(_of(world, "still", 0), rules["still"].qps))


async def test_it_has_shrunk_before_another_can_have_more(world):
    """Q: when the partition is released, at the latest."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.take_over([0, 1], 1)
    await until(lambda: "still" in rules and rules["still"].qps == 1_000)
    node.owned.stop_partition(1)
    await node.owned.hand_off(1, 1)
    assert isclose(_of(world, "still", 0), rules["still"].qps)


async def test_a_project_that_appears_while_partitions_come_gets_its_share_too(world):
    """Q: it is told its rules by what the node had at that moment, and must be told again."""
    assert _spread_out(world, "b")
    node, rules = await bare(world, shares_after_s=0.3)
    await put(world, "b", 0)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: {"b", "still"} <= rules.keys())
    await node.owned.open(1, 2)
    await until(lambda: rules["b"].qps == 500)
    await until(lambda: rules["still"].qps == 1_000)


async def test_partitions_that_keep_coming_don_t_put_it_off(world):
    """W: a node of hundreds of partitions opens them one after the other for seconds."""
    node, rules = await bare(world, shares_after_s=0.1)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    node.owned.mine.add(1)

    async def coming():
        while True:
            node.queues.shares.more_partitions()
            await asyncio.sleep(0.02)

    busy = asyncio.ensure_future(coming())
    try:
        await until(lambda: rules["still"].qps == 1_000, 3)
    finally:
        busy.cancel()


async def test_a_change_in_the_middle_of_a_long_round_reaches_all(world):
    """Q: of thousands of projects some have had their turn when the next partition goes."""
    node, rules = await bare(world, shares_at_once=1, shares_after_s=0.01)
    for project in ("still", "b"):
        await put(world, project, 0)
    await node.take_over([0, 1], 1)
    await until(lambda: {"b", "still"} <= rules.keys())
    for _ in range(20):
        node.owned.stop_partition(1)
        await turns(2)
        node.owned.mine.add(1)
        node.queues.shares.more_partitions()
    await until(lambda: (rules["still"].qps, rules["b"].qps) == (1_000, 500))


async def test_a_partition_that_was_not_opened_in_the_end_leaves_no_share_behind(world):
    """Q: it was another's again while it waited its turn to be opened."""
    node, rules = await bare(world)
    await node.owned.open(0, 1)
    await until(lambda: node.queues.shares._sharing is None)
    gate, node.owned._opening = node.owned._opening, asyncio.Semaphore(0)
    opening = asyncio.ensure_future(node.owned.open(1, 2))
    await turns(2)
    node.owned._opening = gate
    await put(world, "still", 0)
    await until(lambda: "still" in rules)
    parts, shares = [], node.queues.shares
    parts.append((shares.part("still"), shares.revision))
    opening.cancel()
    node.owned.stop_partition(1)
    parts.append((shares.part("still"), shares.revision))
    opening = asyncio.ensure_future(node.owned.open(1, 3))
    await turns(2)
    parts.append((shares.part("still"), shares.revision))
    opening.cancel()
    node.owned.stop_partition(1)
    assert [1.0, 1.0] == [parts[0][0], parts[2][0]] != parts[1][0]
    assert 3 == len({revision for _, revision in parts})  # what was looked up under one of them isn't used any more
    assert {} == await node.owned.hand_off(1, 2)
    await until(lambda: isclose(_of(world, "still", 0), rules["still"].qps), 3)


async def test_a_topic_that_changes_is_shared_by_the_new_rules(world):
    """X4."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    world.topics["still"] = topic(qps=2_000, groups=10)
    node.topic_changed("still", world.topics["still"])
    assert isclose(_of(world, "still", 0), rules["still"].qps)
    assert rules["still"].qps < 2_000


# ---- a partition that moves while its part is lent


async def test_who_releases_what_it_has_lent_says_for_how_long(world):
    """Q, Z1: another node may use it until then, whoever owns it."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.take_over([0, 1], 1)
    await until(lambda: "still" in rules)
    shares, later = node.queues.shares, now_ns() + 10 * SECOND
    assert 0.9 == shares.loans.lend("still", 1, 1, 0.9, shares.own("still"), later)
    assert {} == node.owned.owed(0), "what is left here covers it"
    node.owned.stop_partition(1)
    assert 9 < node.owned.owed(1)["still"] <= 10
    await until(lambda: rules["still"].qps < 20)
    assert shares.loans.part("still", shares.own("still")) == 0, "and nothing of it is used here"


async def test_who_takes_it_over_uses_it_from_then_on(world):
    """Q, Z1: at once, but for the part that is lent; and if it releases it before that, it says so again."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    alone = rules["still"].qps
    await node.owned.open(1, 2, [HeldRecord(id="a", epoch=1, lent={"still": 0.5, "b": 30.0})])
    await put(world, "b", 1)
    await until(lambda: "b" in rules)
    shares = node.queues.shares
    assert isclose(shares.own("b"), _own(world, "b", {0}).part)
    assert rules["still"].qps == alone
    assert 29 < shares.owed(1)["b"] <= 30
    await until(lambda: rules["still"].qps == 1_000)
