"""A clean end of a process, in the engine's steps: its settle logs and etcd record it (X11, fault 4)."""

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.ring.membership.records import HeldRecord, decode
from tests.support.membership_cluster import MembershipCluster
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import Held
from tests.support.node.two import P
from tests.support.until import until


class Process:
    """A node that gets its partitions by etcd."""

    def __init__(self, world, cluster):
        self.world, self.cluster = world, cluster

    async def start(self):
        self.node = await self.world.idle_node(self.world.handle)
        self.session = await self.cluster.join("a", host=self.node.owned)
        await self.cluster.own(a=[P])
        await until(lambda: self.node.lanes.is_served(P))

    async def sigterm(self):
        """Carry out the engine's steps at its end; return whether all handlers have ended."""
        membership = self.session.membership
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


async def test_settle_logs_record_a_clean_end_without_etcd(world, process):
    """X11."""
    await world.put_paused()
    done = await world.put_keys([None] * 3)
    await until(lambda: set(done) == set(world.ids))
    process.session.client.cut()
    assert await process.sigterm()
    assert ((0, True), (0, True)) == (await world.last_word(), await world.last_word("later"))
    assert (0, 0) == world.horizons(await next_owner(world))


async def test_handler_that_never_ends_leaves_no_suspect_without_etcd(world, process):
    """X11: its message is handled again at the first attempt."""
    world.waits = Held("own")
    own = await world.put_key(None, id="own")
    await world.runs(process.node, own)
    process.session.client.cut()
    assert not await process.sigterm()
    node = await next_owner(world)
    await world.runs(node, own)
    assert (0, 0) == world.horizons(node)
    assert {own: (1, False)} == world.looks(node)


@pytest.mark.parametrize("single", [False, True], ids=["fresh", "recorded"])
async def test_handler_that_never_ends_after_the_release_leaves_no_suspect(world, process, single):
    """X11, Z1: the handoff key releases its message, so that the next owner doesn't take its end for a crash."""
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
    released = decode(HeldRecord, item.key, item.value)
    assert (0, []) == (item.lease, released.lanes["lanes"].running)
    node = await next_owner(world, released)
    await world.runs(node, own)
    assert (0, 0) == world.horizons(node)
    assert {own: (1, False)} == world.looks(node)
    assert {own: single} == world.recorded(node)
