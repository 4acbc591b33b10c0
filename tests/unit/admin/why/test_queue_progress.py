"""E11: a node's answer about how far the queues of a project have come, on the store in memory."""

import asyncio

from evenlane.engine.admin.why.queue_progress import ProgressInspector
from evenlane.engine.core.message.handler_exceptions import Retry
from tests.support.node.gated import gated
from tests.support.node.world import is_durable, topic
from tests.support.until import until


async def progress(node, priority="", **options):
    found, _ = await ProgressInspector(node, **options).inspect("acme", priority)
    return {(each.priority, each.group): each for each in found}


def places(each):
    return each.settled, each.head, each.next, each.end


async def test_messages_in_flight_and_waiting():
    """E11: from settled to head nothing, from head to next what is in flight, from next to end what waits."""
    async with gated(acme=topic(groups=1)) as world:
        node = await world.node(world.handle, concurrency=3)
        await world.put_many(10)
        await until(lambda: node.backlog == 7 and len(node.in_flight) == 3)
        (queue,) = (await progress(node)).values()
        partition = world.partition_of(0)
        seen = (queue.priority, queue.group, queue.partition, queue.epoch, queue.waiting, queue.in_flight)
        assert ("mid", 0, partition, 1, 7, 3) == seen
        assert (0, 1, 4, 10) == places(queue)
        world.gate.set()
        await until(lambda: len(world.handled) == 10)
        assert (10, 11, None, 10) == places((await progress(node))["mid", 0])


async def test_positions_move_with_the_queue():
    """E11: the next owner knows what the previous one knew, after a crash, too; `settled` never falls."""
    async with gated(acme=topic(groups=1)) as world:
        world.gate.set()
        first = await world.node(world.handle, concurrency=2)
        await world.put_many(6)
        await until(lambda: len(world.handled) == 6 and is_durable(first))
        world.gate.clear()
        await world.put_many(6)
        await until(lambda: first.backlog == 4)
        before = (await progress(first))["mid", 0]
        assert (6, 7, 9, 12) == places(before)
        await world.crash(first)
        second = await world.node(world.handle, concurrency=1)
        await until(lambda: second.backlog == 5)
        after = (await progress(second))["mid", 0]
        assert (2, 6, 7, 8, 12) == (after.epoch, *places(after))


async def test_settled_waits_for_the_settle_log():
    """E11: what has ended isn't settled before the log has it."""
    async with gated(acme=topic(groups=1)) as world:
        world.gate.set()
        node = await world.node(world.handle, settle_interval=60.0)
        await world.put_many(5)
        await until(lambda: len(world.handled) == 5)
        assert (None, 6, None, 5) == places((await progress(node, durable_s=0.0))["mid", 0])
        asked = asyncio.create_task(progress(node, durable_s=30.0))
        lane = node.partitions[world.partition_of(0)].lane
        await asyncio.sleep(0)
        node.settler.flush(lane)
        assert (5, 6, None, 5) == places((await asked)["mid", 0])


async def test_failed_message_of_an_ordered_topic_holds_its_place():
    """E11: it rests in its lane until its next attempt."""

    async def fail(_message):
        raise Retry(after=3600)

    async with gated(acme=topic(groups=1, ordered=True)) as world:
        node = await world.node(fail)
        headers = {"Evenlane-Key": "k"}
        await world.put(headers=headers)
        await until(lambda: node.partitions[world.partition_of(0)].lane.marks.of)
        (queue,) = (await progress(node)).values()
        assert (0, 1, None, 1) == places(queue)


async def test_copy_that_is_not_stored_holds_its_place():
    """E11: a failed message isn't settled before its retry is stored."""

    async def fail(_message):
        raise Retry(after=3600)

    async with gated(acme=topic(groups=1)) as world:
        node = await world.node(fail)
        world.server.refuse("later.")
        await world.put()
        await until(lambda: node.failures.messages)
        assert (0, 1, None, 1) == places((await progress(node))["mid", 0])
        world.server.accept("later.")
        await until(lambda: not node.failures.messages)
        assert (1, 2, None, 1) == places((await progress(node))["mid", 0])


async def test_answer_is_bounded():
    """E11: with many queues, those with the largest backlogs."""
    async with gated(acme=topic(state="paused")) as world:
        node = await world.node(world.handle)
        for group in range(8):
            await world.put_many(1 + group, group=group)
        await world.put_many(20, priority="high")
        await until(lambda: node.backlog == 56)
        found, left_out = await ProgressInspector(node, most=3).inspect("acme")
        assert [("high", 0, 20), ("mid", 7, 8), ("mid", 6, 7)] == [(e.priority, e.group, e.waiting) for e in found]
        assert 6 == left_out
        assert {("high", 0)} == set(await progress(node, "high"))


async def test_untrusted_node_says_nothing():
    """E11: a newer owner may have come further."""
    async with gated(acme=topic(state="paused")) as world:
        node = await world.node(world.handle)
        await world.put()
        await until(lambda: node.backlog)
        assert await progress(node)
        node.trust(0)
        assert {} == await progress(node)
