"""A backlog that is taken over: priorities, due messages and small queues during the catch-up (E5, Z6)."""

import asyncio

import pytest

from evenlane.engine.core.ports import Lost
from evenlane.engine.node.tuning import NodeTuning
from evenlane.engine.store.memory import feed
from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import SECOND, World, topic
from tests.support.until import until


async def test_takeover_handles_a_backlog_by_priority():
    """E5: high messages go first, though they are last in the stream."""
    async with World() as world:
        await world.put_many(1000, priority="low")
        middle = await world.put_many(2, priority="mid")
        urgent = await world.put_many(2, priority="high")
        await world.node(concurrency=1)
        await until(lambda: len(world.handled) > 10)
        assert [*urgent, *middle] == world.ids[:4]


PATIENT = NodeTuning(backlog_wait_s=3_600.0)
"""Lower bands don't start by themselves during a test."""


@pytest.mark.parametrize("gone", [(11,), (12,), (11, 12)])
async def test_lower_bands_do_not_wait_for_deleted_messages(gone):
    """E5, E10: the high message of the backlog, its last message, or both were deleted."""
    async with World() as world:
        await world.put_many(10, priority="low")
        await world.put(priority="high")
        await world.put(priority="low")
        for sequence in gone:
            await world.store.delete(lane_of("lanes"), sequence)
        await world.node(tuning=PATIENT)
        await world.all_gone()
        assert len(world.handled) == 12 - len(gone)


@pytest.mark.parametrize("late", [-SECOND, SECOND // 5], ids=["due before", "due soon after"])
async def test_due_message_waits_no_longer_than_the_backlog(late):
    """E5, E10: its queue has no message in the lane, whose last message was deleted."""
    async with World() as world:
        await world.put_many(3, priority="high")
        await world.store.delete(lane_of("lanes"), 3)
        due = await world.put(priority="mid", due=world.store.now() + late)
        await world.node(tuning=PATIENT)
        await world.all_gone()
        assert due in world.ids


async def test_due_message_starts_after_a_long_backlog():
    """E5: one that is long enough for its subjects to be read."""
    async with World() as world:
        await world.put_many(400, priority="high")
        due = await world.put(priority="mid", due=world.store.now() - SECOND)
        await world.node(tuning=NodeTuning(backlog_wait_s=3_600.0, small=100))
        await until(lambda: due in world.ids, what="the due message to be handled")


async def test_tail_feed_serves_new_messages_during_a_catch_up():
    """E5, E14: a queue with a backlog keeps its order."""
    async with World() as world:
        await world.put_many(2000, priority="low")
        gate = asyncio.Event()

        async def handle(message):
            if message.priority == "low":
                await gate.wait()
            world.handled.append(message)

        node = await world.node(handle, concurrency=2, tuning=NodeTuning(tail_beyond=100))
        new = await world.put_many(50, priority="low")
        urgent = await world.put(priority="high")
        await until(lambda: len(node.workers.running) == 2)
        gate.set()
        await world.all_gone(20)
        low = [message for message in world.handled if message.priority == "low"]
        assert urgent in world.ids
        assert 2050 == len(low)
        assert new == [message.id for message in low[-50:]]
        await until(lambda: not any(each.lane.is_catching_up for each in node.partitions.values()))


async def test_small_queue_does_not_wait_for_the_catch_up(monkeypatch):
    """V, Z6: it is read by its subject, though a large backlog is before it in the stream."""
    monkeypatch.setattr(feed, "_BATCH", 1)
    hog = next(name for name in map("hog{}".format, range(99)) if World.partition_of(0, name) == P)
    async with World(**{hog: topic(state="paused"), "acme": topic()}) as world:
        await world.put_many(3000, project=hog)
        small = await world.put_many(20)
        early: list[bool] = []

        async def handle(message):
            early.append(message.lane.is_catching_up)
            world.handled.append(message)

        node = await world.node(handle, tuning=NodeTuning(tail_beyond=100))
        small += await world.put_many(5)
        await until(lambda: len(world.handled) == 25)
        assert all(early[:20])
        assert sorted(small) == sorted(world.ids)
        await until(lambda: not any(each.lane.is_catching_up for each in node.partitions.values()))
        assert 3000 == node.backlog
        assert 25 == len(world.handled)


async def test_takeover_does_not_wait_for_delayed_messages():
    """Z6: the first message starts as soon as the lane is fed. The partition isn't opened, for counts and drops of
    waiting messages, until its delayed messages are known.
    """
    async with Two() as world:
        node = await world.bare()
        counts, asked, answered = node.store.counts, [], asyncio.Event()

        async def slow_for_later(lane):
            if lane.kind == "later":
                asked.append(lane)
                if len(asked) == 1:
                    raise Lost("no answer")
                await answered.wait()
            return await counts(lane)

        node.store.counts = slow_for_later
        first, due = await world.put(), await world.put(due=world.store.now())
        opening = asyncio.ensure_future(node.owned.open(P, 1))
        await until(lambda: first in world.ids)
        await until(lambda: len(asked) == 2)
        assert due not in world.ids
        assert not node.partitions[P].opened
        answered.set()
        await opening
        assert node.partitions[P].opened
        await until(lambda: due in world.ids)
