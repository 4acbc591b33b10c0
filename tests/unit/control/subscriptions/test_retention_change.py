"""What a change of the retention waits for, and what it refuses (K10)."""

import asyncio

import pytest
from msgspec.structs import replace

from evenlane.engine.cluster.subscriptions.registry import Retain, Subscription, read_view, registry_key
from evenlane.engine.control.subscriptions.retention_change import RetentionChange
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.subscription_world import ENV, LANES, SubscriptionWorld
from tests.support.until import until

DAY = Retain(age=86_400 * 10**9, most_bytes=1 << 30)


def change(world, limit_s=0.0):
    return RetentionChange(world.etcd.peer(), ENV, world.config, world.shared, limit_s=limit_s)


async def registry(world):
    return read_view(await world.etcd.get(registry_key(ENV)))


async def refusal(world):
    with pytest.raises(EvenlaneError) as failed:
        await change(world).begin(DAY)
    return str(failed.value)


async def test_registry_says_it_until_it_ends(world):
    """K10: with subscriptions or without; the key goes with the last thing that it says."""
    await change(world).begin(DAY)
    assert ({}, DAY) == (await registry(world))[1:]
    assert [2] * len(LANES) == [(await world.log(lane))[-1].version for lane in LANES]
    await world.creation().run()
    assert (["audit"], DAY) == ([*(found := await registry(world)).subscriptions], found.retain)
    await world.deletion().run()
    assert DAY == (await registry(world)).retain
    await change(world).end()
    assert not (await registry(world)).exists
    await world.creation().run()
    await change(world).begin(DAY)
    await change(world).end()
    assert (["audit"], None) == ([*(found := await registry(world)).subscriptions], found.retain)


async def test_owner_must_follow_it_first(world):
    """K10: from the acknowledgement on, all are kept."""
    lease = await world.node("n1")
    await world.own_partition(1, "n1", lease)
    assert await refusal(world) == (
        "settled messages of environment 'online' aren't all kept yet: node n1 hasn't acknowledged it within 0 s;"
        " `evenlane streams retain 1d --bytes 1GiB --env online` waits again"
    )
    waiting = asyncio.create_task(change(world, 60).begin(DAY))
    await until(world.revision)
    await world.see("n1", lease, await world.revision())
    await waiting


async def test_only_more_bytes_need_room(world):
    """K10: what was set before is in use already, so a repetition is never refused."""
    room = []

    class FullStore(MemoryStore):
        async def has_room(self, size):
            room.append(size)
            return size <= 1 << 30

    store = FullStore(world.server, ENV)
    await store.open()

    async def keep(size):
        retain = replace(DAY, most_bytes=size)
        await RetentionChange(world.etcd.peer(), ENV, world.config, store, limit_s=0.0).begin(retain)

    for size in (1 << 30, 1 << 30, 1 << 20, 1 << 30):
        await keep(size)
    assert [1 << 30, (1 << 30) - (1 << 20)] == room
    with pytest.raises(EvenlaneError, match="NATS can't store 2GiB more: name fewer bytes by --bytes"):
        await keep(3 << 30)
    assert DAY == (await registry(world)).retain


async def test_node_of_an_older_release_is_named(world):
    await world.register(billing=Subscription(state="active"))
    await world.node("old-1", {})
    before = await world.revision()
    assert await refusal(world) == (
        "node old-1 of environment 'online' runs an older release, which would remove messages that are to be kept:"
        " update all nodes first"
    )
    assert before == await world.revision()


async def test_environment_with_limited_queues():
    world = SubscriptionWorld(max_queue_backlog=5)
    await world.open()
    assert await refusal(world) == (
        "environment 'online' has a max_queue_backlog, so it can't keep settled messages: NATS would refuse puts"
        " because of them"
    )
    assert 0 == await world.revision()
    await world.close()
