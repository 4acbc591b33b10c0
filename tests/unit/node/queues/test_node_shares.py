"""A node's shares of topics while partitions come and go (Q)."""

import asyncio
from math import isclose

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.node.queues.quota_share import node_share, share_of
from evenlane.engine.node.tuning import NodeTuning
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.ring.membership.records import HeldRecord
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic, turns
from tests.support.scheduler.delegating import DelegatingScheduler
from tests.support.until import until


class RecordingScheduler(DelegatingScheduler):
    """A fair scheduler that records the last rules of each project."""

    def __init__(self):
        super().__init__()
        self.rules = {}

    def configure(self, project, rules, now, whole=None):
        self.rules[project] = rules
        self.inner.configure(project, rules, now, whole)


@pytest.fixture
async def world():
    async with World(still=topic(qps=1_000), b=topic(qps=500)) as made:
        yield made


async def bare(world, **tuning):
    """A node that owns nothing, and its recorded rules."""
    store = MemoryStore(world.server, "online")
    await store.open()
    node = Node(
        store,
        CLUSTER_CONFIG,
        RouteTable.of(world.note),
        world.topics.get,
        concurrency=8,
        settle_interval=0.02,
        scheduler=RecordingScheduler(),
        tuning=NodeTuning(**tuning),
    )
    world.nodes.append(node)
    await node.start()
    return node, node.scheduler.rules


def _of(world, project, partition):
    """The rate of a project's groups in one partition."""
    whole = world.topics[project]
    own = _own(world, project, {partition})
    return share_of(whole, own, own.part).qps


def _own(world, project, mine):
    return node_share(project, world.topics[project], (), mine.__contains__, CLUSTER_CONFIG)


async def put(world, project, partition):
    return await world.put(project=project, group=world.group_in(partition, project))


def _spread_out(world, project):
    return 0 < _own(world, project, {0}).groups < 10


async def test_share_grows_and_shrinks_with_the_partitions(world):
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


async def test_share_has_shrunk_when_the_partition_is_released(world):
    """Q: before another node has more."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.take_over([0, 1], 1)
    await until(lambda: "still" in rules and rules["still"].qps == 1_000)
    node.owned.stop_partition(1)
    await node.owned.hand_off(1, 1)
    assert isclose(_of(world, "still", 0), rules["still"].qps)


async def test_project_that_appears_during_a_takeover_gets_its_share(world):
    """Q: its rules are computed by the partitions of that moment, and must be computed again."""
    assert _spread_out(world, "b")
    node, rules = await bare(world, shares_after_s=0.3)
    await put(world, "b", 0)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: {"b", "still"} <= rules.keys())
    await node.owned.open(1, 2)
    await until(lambda: rules["b"].qps == 500)
    await until(lambda: rules["still"].qps == 1_000)


async def test_arriving_partitions_do_not_defer_the_share(world):
    """W: a node with hundreds of partitions opens them one after another for seconds."""
    node, rules = await bare(world, shares_after_s=0.1)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    node.owned.mine.add(1)

    async def arrive():
        while True:
            node.queues.shares.on_more_partitions()
            await asyncio.sleep(0.02)

    arriving = asyncio.ensure_future(arrive())
    try:
        await until(lambda: rules["still"].qps == 1_000)
    finally:
        arriving.cancel()


async def test_change_during_a_pass_reaches_all_projects(world):
    """Q: some of thousands of projects have been processed when the next partition goes."""
    node, rules = await bare(world, shares_at_once=1, shares_after_s=0.01)
    for project in ("still", "b"):
        await put(world, project, 0)
    await node.take_over([0, 1], 1)
    await until(lambda: {"b", "still"} <= rules.keys())
    for _ in range(20):
        node.owned.stop_partition(1)
        await turns(2)
        node.owned.mine.add(1)
        node.queues.shares.on_more_partitions()
    await until(lambda: (rules["still"].qps, rules["b"].qps) == (1_000, 500))


async def test_interrupted_takeover_leaves_no_share(world):
    """Q: the partition was another node's again while it was being opened."""
    node, rules = await bare(world, shares_after_s=0.0)
    await node.owned.open(0, 1)
    await turns()

    async def unanswered(_lane):
        await asyncio.Event().wait()

    node.store.read_log = unanswered
    await put(world, "still", 0)
    await until(lambda: "still" in rules)
    parts, shares = [], node.queues.shares
    for epoch in (2, 3):
        opening = asyncio.ensure_future(node.owned.open(1, epoch))
        await turns(2)
        parts.append((shares.part("still"), shares.revision))
        opening.cancel()
        node.owned.stop_partition(1)
        parts.append((shares.part("still"), shares.revision))
        assert {} == await node.owned.hand_off(1, epoch)
    own = _own(world, "still", {0}).part
    assert [1.0, own, 1.0, own] == [part for part, _ in parts]
    assert 4 == len({revision for _, revision in parts}), "a part that was looked up earlier is stale"
    await until(lambda: isclose(_of(world, "still", 0), rules["still"].qps))


async def test_changed_topic_is_shared_by_its_new_rules(world):
    """X4."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    change(world, node, topic(qps=2_000, groups=10), "still")
    assert isclose(_of(world, "still", 0), rules["still"].qps)
    assert rules["still"].qps < 2_000


# ---- partitions that move while their part is lent


async def test_release_of_a_lent_part_reports_the_end_of_the_loan(world):
    """Q, Z1: another node may use the part until then."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.take_over([0, 1], 1)
    await until(lambda: "still" in rules)
    shares, later = node.queues.shares, now_ns() + 10 * SECOND
    assert 0.9 == shares.loans.lend("still", 1, 1, 0.9, shares.compute_own_part("still"), later)
    assert {} == node.owned.list_owed(0), "the other partition covers the loan"
    node.owned.stop_partition(1)
    assert 9 < node.owned.list_owed(1)["still"] <= 10
    await until(lambda: rules["still"].qps < 20)
    assert shares.loans.part("still", shares.compute_own_part("still")) == 0, "the node uses nothing of it"


async def test_next_owner_uses_a_lent_part_after_the_loan(world):
    """Q, Z1: and other parts at once. If it releases the partition earlier, it reports the loan again."""
    node, rules = await bare(world)
    await put(world, "still", 0)
    await node.owned.open(0, 1)
    await until(lambda: "still" in rules)
    alone = rules["still"].qps
    await node.owned.open(1, 2, [HeldRecord(id="a", epoch=1, lent={"still": 0.5, "b": 30.0})])
    await put(world, "b", 1)
    await until(lambda: "b" in rules)
    shares = node.queues.shares
    assert isclose(shares.compute_own_part("b"), _own(world, "b", {0}).part)
    assert rules["still"].qps == alone
    assert 29 < shares.list_owed(1)["b"] <= 30
    await until(lambda: rules["still"].qps == 1_000)
