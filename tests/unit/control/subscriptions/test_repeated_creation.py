"""Creations that are broken off and repeated, and several at once (K10)."""

import asyncio
import itertools

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.records.settle_record import SettleRecord
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.subscription_world import CLUSTER, ENV, LANES, NAME, NEW, Died, Life, SubscriptionWorld
from tests.support.until import until

LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)


@pytest.mark.parametrize("after", [False, True])
async def test_creation_is_repeated(after):
    """K10: a creator dies at any request; repeating the command completes the creation."""
    for most in itertools.count(1):
        world = SubscriptionWorld()
        await world.open()
        await world.put(LANE, 3)
        try:
            await world.creation(life=Life(most, after=after)).run(["acme"])
        except Died:
            known = await world.known()
            if NAME not in known or known[NAME].state == "creating":
                await world.creation().run(["acme"])
        else:
            break
        finally:
            assert await world.is_complete()
            assert [3] == [each.watermark for each in await world.log(LANE, CLUSTER)]
            await world.close()
    assert most > 30


async def test_two_creators_at_once(world):
    """K10: both end well, and each log has one first record."""
    lease = await world.node("n1")
    await world.own_partition(0, "n1", lease)
    both = [asyncio.create_task(world.creation(limit_s=60).run()) for _ in range(2)]
    await until(world.revision)
    await world.see("n1", lease, await world.revision())
    await asyncio.gather(*both)
    assert "active" == (await world.known())[NAME].state
    assert [1] * len(LANES) == [len(await world.log(lane, CLUSTER)) for lane in LANES]


async def test_two_subscriptions_at_once(world):
    """K10: neither change of the registry undoes the other."""
    await asyncio.gather(world.creation().run(), world.creation("billing").run())
    assert {"active"} == {each.state for each in (await world.known()).values()}
    assert 2 == len(await world.known())


async def test_deletion_meanwhile(world):
    """K10: one sentence; the creation brings nothing back."""
    await world.own_partition(0, "n1", await world.node("n1"))
    running = asyncio.create_task(world.creation(limit_s=60).run())
    await until(lambda: world.has_own_streams() == {True})
    await world.deletion().run()
    await world.etcd.delete("/evenlane/online/owners/0")
    with pytest.raises(EvenlaneError, match=r"^subscription 'audit' of .* was deleted while it was being created$"):
        await running
    assert ({}, {False}) == (await world.known(), world.has_own_streams())


class Overtaken(MemoryStore):
    """A store in which a node claims partition 1 as soon as its log has been read, and writes its first record."""

    def __init__(self, world, version, reads):
        super().__init__(world.server, ENV)
        self._world, self._version, self._reads = world, version, reads
        self.lease = 0

    async def state(self, lane):
        if lane == LANE and not self.lease:
            self.lease = await self._world.node("n1", self._reads)
            revision = await self._world.own_partition(1, "n1", self.lease)
            first = SettleRecord(self._version, revision, 1, "memory-5", 0, 0, 0, b"")
            await self._world.append(LANE, first, first)
        return await super().state(lane)


@pytest.fixture
async def overtaken(world, request):
    world.shared = Overtaken(world, *request.param)
    await world.shared.open()
    return world


@pytest.mark.parametrize("overtaken", [(2, NEW)], indirect=True, ids=[""])
async def test_partition_that_is_claimed_meanwhile(overtaken):
    """K10: its owner has seen the registry, so its log is left to it."""
    await overtaken.creation().run()
    assert [1, 2] == [len(await overtaken.log(lane)) for lane in (LATER, LANE)]
    assert "active" == (await overtaken.known())[NAME].state


@pytest.mark.parametrize("overtaken", [(1, {})], indirect=True, ids=[""])
async def test_partition_that_an_older_node_claims_meanwhile(overtaken):
    """K10: its key says nothing about what it has seen, so the creation is taken back."""
    with pytest.raises(EvenlaneError, match="node n1 of environment 'online' runs an older release"):
        await overtaken.creation().run()
    assert ({}, {False}) == (await overtaken.known(), overtaken.has_own_streams())


@pytest.mark.parametrize("overtaken", [(1, {})], indirect=True, ids=[""])
async def test_older_node_that_comes_and_goes(overtaken):
    """K10: its log gets a record that keeps the next one out."""

    class Short(Life):
        async def spend(self, carry_out):
            if overtaken.shared.lease:
                await overtaken.etcd.revoke(overtaken.shared.lease)
            return await carry_out()

    await overtaken.creation(life=Short(0)).run()
    assert [1, 1, 2] == [each.version for each in await overtaken.log(LANE)]
    assert "active" == (await overtaken.known())[NAME].state


async def test_subscription_that_etcd_has_lost_returns(world):
    """F2, K10: a restoration of etcd may lose it. It goes on where it was, also with delayed messages; and a node of
    an older release that keeps it from that doesn't cost it its settle logs.
    """
    await world.put(LANE, 3)
    await world.creation().run()
    before = await world.log(LANE, CLUSTER)
    await world.put(LANE, 4)
    await world.lose_registry()
    lease = await world.node("old", {})
    with pytest.raises(EvenlaneError, match="node old of environment 'online' runs an older release"):
        await world.creation().run()
    await world.etcd.revoke(lease)
    await world.creation().run()
    assert before == await world.log(LANE, CLUSTER)
    found = (await world.known())[NAME]
    assert ("active", 0) == (found.state, found.due_from)


async def test_streams_that_are_missing_are_created_again(world):
    """L, K10: somebody has deleted them. The subscription then gets all messages that there are; nothing of them was
    removed, since nobody knew what it had settled.
    """
    await world.put(LANE, 3)
    await world.creation().run(["acme"])
    await world.put(LANE, 4)
    await world.own.delete_own_streams()
    await world.creation().run(["acme"])
    assert {True} == world.has_own_streams()
    assert [0] == [each.watermark for each in await world.log(LANE, CLUSTER)]
    with pytest.raises(EvenlaneError, match="already has a subscription 'audit'"):
        await world.creation().run()
