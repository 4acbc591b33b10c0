"""A process that ends in order says so, to its settle logs and to etcd, as the engine has it do (X11, fault 4)."""

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.ring.membership.records import HeldRecord, decode
from tests.support.membership_cluster import MembershipCluster
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import Held
from tests.support.node.two import P
from tests.support.until import until


class Process:
    """A node whose partitions are etcd's to give."""

    def __init__(self, world, cluster):
        self.world, self.cluster = world, cluster

    async def start(self):
        self.node = await self.world.idle_node(self.world.handle)
        self.term = await self.cluster.join("a", host=self.node.owned)
        await self.cluster.own(a=[P])
        await until(lambda: self.node.lanes.serves(P))

    async def sigterm(self):
        """What the engine does at the end, in its order; whether all had ended."""
        membership = self.term.membership
        await membership.end()
        self.node.trust(0)
        self.world.nodes.remove(self.node)
        clean = await self.node.stop(0.1)
        await membership.publish_release()
        await self.node.store.close()
        return clean


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


@pytest.fixture
async def process(world):
    async with MembershipCluster() as cluster:
        made = Process(world, cluster)
        await made.start()
        yield made


async def next_owner(world, *held):
    node = await world.idle_node(world.handle)
    await node.owned.open(P, now_ns(), held)
    return node


async def test_while_etcd_is_away(world, process):
    """X11: the logs alone say that the end was clean."""
    await world.put_paused()
    done = await world.put_keys([None] * 3)
    await until(lambda: set(done) == set(world.ids))
    process.term.client.cut()
    assert await process.sigterm()
    assert ((0, True), (0, True)) == (await world.last_word(), await world.last_word("later"))
    assert (0, 0) == world.horizons(await next_owner(world))


async def test_a_handler_that_never_ends_while_etcd_is_away(world, process):
    """X11: it is handled again at its first attempt, no suspect."""
    world.waits = Held("own")
    own = await world.put_key(None, id="own")
    await world.runs(process.node, own)
    process.term.client.cut()
    assert not await process.sigterm()
    node = await next_owner(world)
    await world.runs(node, own)
    assert (0, 0) == world.horizons(node)
    assert {own: (1, False)} == world.looks(node)


@pytest.mark.parametrize("single", [False, True], ids=["fresh", "recorded"])
async def test_a_handler_that_never_ends_after_the_partition_was_released(world, process, single):
    """X11, Z1: the key lets it go, so that the next owner doesn't take its end for a death."""
    if single:
        await world.changed(process.node, max_attempts=1)
    world.waits = Held("own")
    own = await world.put_key(None, id="own")
    await world.runs(process.node, own)
    await process.cluster.plan(a=[])
    (item,) = await until(process.cluster.held)
    assert [1] == decode(HeldRecord, item.key, item.value).lanes["lanes"].running
    assert not await process.sigterm()
    (item,) = await process.cluster.held()
    text = decode(HeldRecord, item.key, item.value)
    assert (0, []) == (item.lease, text.lanes["lanes"].running)
    node = await next_owner(world, text)
    await world.runs(node, own)
    assert (0, 0) == world.horizons(node)
    assert {own: (1, False)} == world.looks(node)
    assert {own: single} == world.recorded(node)
