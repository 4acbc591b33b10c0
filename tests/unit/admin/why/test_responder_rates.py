"""Rates in a node's answer to `evenlane why` (X7), on the store in memory."""

import asyncio

import pytest

from evenlane.engine.admin.why.responder import QueueInspector
from tests.support.node.gated import gated
from tests.support.node.world import topic
from tests.support.until import until


async def test_rates_are_measured_between_two_questions():
    """X7."""
    async with gated(acme=topic(qps=1000, burst=1000, max_attempts=1)) as world:

        async def handle(message):
            if message.body == b"bad":
                raise ValueError

        node = await world.node(handle)
        inspector = QueueInspector(node, 0.0)
        await world.put(b"first")
        await until(lambda: node.counters.handled == 1)
        await inspector.inspect("acme")
        for body in (b"good", b"bad", b"good"):
            await world.put(body)
        await world.put(project="other")
        await until(lambda: (node.counters.handled, node.counters.dead) == (3, 1))
        rates = (await inspector.inspect("acme")).rates
        counts = [rate * rates.seconds for rate in (rates.arriving, rates.handled, rates.failed)]
        assert pytest.approx([3, 2, 1]) == counts


@pytest.mark.parametrize("is_changed", [False, True])
async def test_changed_topic_restarts_the_measurement(is_changed):
    """X7: rates under other rules say nothing about the present ones."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node()
        await until(lambda: node.backlog == 5)
        inspector = QueueInspector(node, 0.0)
        await inspector.inspect("acme")
        await world.put_many(3)
        await until(lambda: node.backlog == 8)
        if is_changed:
            world.topics["acme"] = topic(qps=7, state="paused")
            node.on_topic_change("acme", world.topics["acme"])
        rates = (await inspector.inspect("acme")).rates
        assert (True, is_changed) == (rates.is_known, rates.arriving == 0.0)


async def test_backlog_of_a_takeover_is_no_arrival():
    """X7, fault 1: its messages were put long ago."""
    async with gated(acme=topic(state="paused")) as world:
        for group in range(4):
            await world.put_many(5, group=group)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 20)
        gone = node.queues.of_project("acme")[0].partition
        epoch = node.partitions[gone].lane.epoch
        node.owned.stop_partition(gone)
        await node.owned.hand_off(gone, epoch)
        assert node.backlog < 20
        inspector = QueueInspector(node, 0.0)
        await inspector.inspect("acme")
        await node.take_over([gone], epoch + 1)
        await until(lambda: node.backlog == 20)
        rates = (await inspector.inspect("acme")).rates
        assert (True, 0.0) == (rates.is_known, rates.arriving)


async def test_rates_are_unknown_if_a_partition_goes_during_the_measurement():
    """X7: its counts go with it, and are neither arrivals nor handled messages."""
    async with gated() as world:
        for group in range(4):
            await world.put_many(5, group=group)
        node = await world.node()
        await until(lambda: node.counters.handled == 20)
        inspector = QueueInspector(node, 0.0)
        asking = asyncio.create_task(inspector.inspect("acme"))
        await asyncio.sleep(0)  # its first sample is taken
        node.owned.stop_partition(next(iter(node.partitions)))
        first, then = (await asking).rates, (await inspector.inspect("acme")).rates
        assert (False, 0.0, 0.0) == (first.is_known, then.arriving, then.handled)


async def test_rates_are_unknown_until_the_backlog_is_read():
    """X7, fault 1: also for a while after, when overdue messages are read."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        assert not (await QueueInspector(node, 600.0).inspect("acme")).rates.is_known
        inspector = QueueInspector(node, 0.0)
        lane = node.partitions[node.queues.of_project("acme")[0].partition].lane
        lane.position -= 1
        assert not (await inspector.inspect("acme")).rates.is_known
        lane.position += 1
        assert (await inspector.inspect("acme")).rates.is_known


async def test_retry_leaves_the_backlog_and_arrives_again():
    """X7."""
    async with gated() as world:

        async def handle(message):
            if message.attempt == 1:
                raise ValueError

        node = await world.node(handle)
        await world.put()
        await until(lambda: node.counters.handled == 1)
        (queue,) = node.queues.of_project("acme")
        assert (2, 1, 1) == (queue.stats.arrived, queue.stats.handled, queue.stats.retried)
