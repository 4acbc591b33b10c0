"""Replays of what was handled, with a whole node on the store in memory (K3, K10)."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.admin.replays.client import HandledClient
from evenlane.engine.admin.replays.selection import Stretch
from evenlane.engine.cluster.subscriptions.registry import Subscription
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError, TopicDraining, UnknownProject
from evenlane.engine.node.tuning import NodeTuning
from evenlane.quota.topics.topic import accept, delete
from tests.support.node.gated import NOW, Clock, gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, topic
from tests.support.until import until

FOREVER = 1 << 62
FAST = 1e6


class Replaying:
    """A node whose lane is pinned by its first message, so that what it has handled stays stored. The clock is set by
    the test; `at` is in seconds after the pin.
    """

    def __init__(self, world, node, clock, topics):
        self.world, self.node, self._clock = world, node, clock
        self.client = HandledClient(world.store, "online", topics, CLUSTER_CONFIG)

    async def handle(self, at, *messages, **options):
        """Put the messages at this time, and wait until they are handled durably."""
        self._clock.at = NOW + at * SECOND
        due = self.node.counters.handled + len(messages)
        for message in messages:
            await self.world.put(message.encode(), id=message, **options)
        await until(lambda: self.node.counters.handled == due)
        await until(lambda: not any(lane.log.unsynced_count for lane in self.node.owned.lanes()))

    async def select(self, since, until_, key=None):
        return await self.client.select("acme", Stretch(NOW + since * SECOND, NOW + until_ * SECOND, key))

    async def replay(self, *stretch, **options):
        """Replay, and wait until the copies are handled. Returns the number of stored copies."""
        selection = await self.select(*stretch, **options)
        result = await self.client.replay("acme", selection, rate=FAST)
        assert ([], "") == (result.failed, result.stopped)
        return result.replayed

    @property
    def handled(self):
        return [message.id for message in self.world.handled]


@asynccontextmanager
async def replaying(**fields):
    clock = Clock()
    async with gated(clock, acme=topic(ack_wait=3600, **fields)) as world:

        async def handle(message):
            if message.id == "pin":
                await world.gate.wait()
                return
            world.handled.append(message)

        node = await world.node(handle, concurrency=2, tuning=NodeTuning(pinned_for=FOREVER))
        await world.put(b"pin", id="pin", priority="low")
        await until(lambda: node.workers.running)
        yield Replaying(world, node, clock, {"acme": accept(world.topics["acme"], 1, None)})


async def test_stretch_is_handled_again():
    """K3: from the first time until before the second one, with their bodies. Nothing else."""
    async with replaying() as each:
        for at in range(5):
            await each.handle(10 * at, f"m{at}")
        assert 3 == (await each.select(10, 40)).total
        assert 3 == await each.replay(10, 40)
        await until(lambda: len(each.handled) == 8)
        assert {"m1", "m2", "m3"} == {*each.handled[5:]}
        assert {b"m1", b"m2", b"m3"} == {message.body for message in each.world.handled[5:]}
        assert {1} == {message.attempt for message in each.world.handled}


async def test_repeated_replay_stores_nothing_twice():
    """K3: within the duplicate window. The copies themselves aren't replayed."""
    async with replaying() as each:
        await each.handle(0, "m0", "m1")
        assert 2 == await each.replay(0, 100)
        await until(lambda: len(each.handled) == 4)
        stored = each.world.waiting()
        assert 2 == (await each.select(0, 100)).total
        assert 2 == await each.replay(0, 100)
        assert stored == each.world.waiting()


async def test_what_still_waits_is_left_out():
    """K3: it is handled anyway."""
    async with replaying() as each:
        await each.handle(0, "m0")
        selection = await each.select(0, 100)
        assert (1, 1) == (selection.total, selection.waiting)


async def test_key_selects_its_messages():
    """K3."""
    async with replaying() as each:
        await each.handle(0, "m0", headers={h.KEY: "a"})
        await each.handle(1, "m1", headers={h.KEY: "b"})
        assert 1 == await each.replay(0, 100, "b")
        await until(lambda: len(each.handled) == 3)
        assert "m1" == each.handled[-1]


async def test_start_is_found_among_thousands():
    """K3: more than one page, without reading all of them."""
    async with replaying() as each:
        await each.handle(0, *(f"m{number}" for number in range(2_500)))
        await each.handle(10, "late")
        reads = []
        heads = each.world.store.heads

        async def counted(lane, subject, start, limit):
            found = await heads(lane, subject, start, limit)
            reads.append(len(found))
            return found

        each.world.store.heads = counted
        assert 1 == (await each.select(10, 20)).total
        assert sum(reads) < 2_000
        each.world.store.heads = heads
        assert 2_500 == (await each.select(0, 10)).total


async def test_ordered_messages_keep_their_order():
    """K3: each key's."""
    async with replaying(ordered=True) as each:
        ids = [f"m{number}" for number in range(50)]
        await each.handle(0, *ids, headers={h.KEY: "a"})
        assert 50 == await each.replay(0, 100)
        await until(lambda: len(each.handled) == 100)
        assert ids == each.handled[50:]


async def test_wrong_use_is_one_sentence():
    """K10: a project without a topic, one that is being deleted, one that the subscription doesn't get."""
    async with replaying() as each:
        topics = {"acme": delete(accept(each.world.topics["acme"], 1, None))}
        for project, error in (("nobody", UnknownProject), ("acme", TopicDraining)):
            with pytest.raises(error):
                await HandledClient(each.world.store, "online", topics, CLUSTER_CONFIG).select(project, Stretch(0, 1))
        entry = Subscription(state="active", projects=["orders-*", "b"])
        limited = HandledClient(each.world.store, "online_audit", {"acme": topics["acme"]}, CLUSTER_CONFIG, entry=entry)
        with pytest.raises(TopicDraining):
            await limited.select("acme", Stretch(0, 1))
        open_ = {"acme": accept(each.world.topics["acme"], 1, None)}
        limited = HandledClient(each.world.store, "online_audit", open_, CLUSTER_CONFIG, entry=entry)
        with pytest.raises(EvenlaneError) as failed:
            await limited.select("acme", Stretch(0, 1))
        sentence = "subscription 'audit' gets no messages of acme: its projects are orders-*, b"
        assert sentence == str(failed.value)


async def test_interrupted_replay_is_completed_by_the_next():
    """K3: within the duplicate window, each message has one copy."""
    async with replaying() as each:
        ids = [f"m{number}" for number in range(40)]
        await each.handle(0, *ids)
        interrupted = asyncio.create_task(each.client.replay("acme", await each.select(0, 100), rate=50))
        await until(lambda: len(each.handled) > 45)
        interrupted.cancel()
        await asyncio.gather(interrupted, return_exceptions=True)
        assert len(each.handled) < 80
        assert 40 == await each.replay(0, 100)
        await until(lambda: len(each.handled) == 80)
        assert {2} == {*Counter(each.handled).values()}
        assert [] == each.world.dead()
