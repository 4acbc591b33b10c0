"""From the feed to the handler: order, priority, memory bounds, and deleted or unroutable messages."""

import asyncio

from evenlane.engine.base import names
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.tuning import NodeTuning
from tests.support.node.world import World, change, topic, turns
from tests.support.until import until


async def test_high_message_overtakes_a_backlog():
    """E5: it is handled next, though it arrives behind thousands of low ones."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(3000, priority="low")
        node = await world.node(handle, concurrency=1)
        await until(lambda: node.workers.running and node.backlog == 2999)
        urgent = await world.put(priority="high")
        await until(lambda: node.backlog == 3000)
        gate.set()
        await until(lambda: len(world.handled) > 10)
        assert urgent == world.ids[1]


async def test_full_queue_never_delays_another():
    """E8, E9: a queue reads ahead up to its bound, and others are fed meanwhile."""
    gate = asyncio.Event()
    async with World(hog=topic(), acme=topic()) as world:

        async def handle(message):
            if message.project == "hog":
                await gate.wait()
            world.handled.append(message)

        await world.put_many(2000, project="hog")
        await world.put_many(20, project="acme")
        node = await world.node(handle, concurrency=3, limits=MemoryBudget(read_ahead=16, index=100_000))
        await until(lambda: node.backlog + len(node.workers.running) + len(world.handled) == 2020)
        (hog,), (acme,) = node.queues.of_project("hog"), node.queues.of_project("acme")
        assert len(hog.ready) <= 16
        assert acme.backlog + len(world.handled) >= 16
        gate.set()
        await world.all_gone()


async def test_spilled_queue_keeps_the_put_order():
    """E8, M: with a small read-ahead and index."""
    async with World() as world:
        await world.put_many(3000)
        limits = MemoryBudget(read_ahead=8, index=50)
        node = await world.node(concurrency=1, limits=limits)
        late = await world.put_many(500)
        await world.all_gone(30)
        assert 3500 == len(world.handled)
        assert late == world.ids[3000:]
        assert list(range(1, 3501)) == [message.sequence for message in world.handled]
        assert (0, 0) == (limits.used_bytes, node.backlog)


async def test_payloads_stay_within_the_budget():
    """M: further ones are unloaded, and read again by sequence."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        for group in range(10):
            for _ in range(20):
                await world.put(b"y" * 10_000, group=group)
        limits = MemoryBudget(payload_bytes=100_000, read_ahead=256)
        node = await world.node(handle, concurrency=1, limits=limits)
        await until(lambda: node.backlog == 199)
        assert limits.used_bytes <= 100_000 + 2 * 10_100  # messages that are being read come on top
        gate.set()
        await world.all_gone(20)
        assert {10_000} == {len(message.body) for message in world.handled}
        assert 0 == limits.used_bytes


async def test_groups_of_a_topic_take_turns():
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(100, group=0)
        await world.put_many(100, group=2)
        node = await world.node(handle, concurrency=1)
        await until(lambda: node.backlog == 199)
        gate.set()
        await world.all_gone()
        first = [message.group for message in world.handled[1:21]]
        assert 10 == first.count(0)
        assert 200 == node.counters.handled


async def test_deleted_message_is_counted_and_skipped():
    """E12: its sequence was in the index."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(100)
        node = await world.node(handle, concurrency=1, limits=MemoryBudget(read_ahead=4))
        await until(lambda: node.backlog == 99)
        lane = world.busy_lane
        for sequence in (50, 51, 99):
            await world.store.delete(lane, sequence)
        gate.set()
        await world.all_gone()
        assert (97, 3) == (len(world.handled), node.counters.missing)
        assert 3 == sum(queue.stats.missing for queue in node.queues.all())


async def test_holes_in_a_lane_do_not_pin_the_watermark():
    """E12: the messages were deleted before they were fed."""
    async with World() as world:
        await world.put_many(50)
        lane = world.busy_lane
        for sequence in (1, 2, 17, 30):
            await world.store.delete(lane, sequence)
        node = await world.node()
        await world.all_gone()
        assert 46 == len(world.handled)
        assert 50 == node.partitions[lane.partition].lane.removal.durable_watermark


async def test_pause_and_resume_act_on_the_backlog():
    """X4."""
    async with World(acme=topic(state="paused"), bolt=topic()) as world:
        await world.put_many(600)
        await world.put_many(3, project="bolt")
        node = await world.node()
        await until(lambda: len(world.handled) == 3)
        (queue,) = node.queues.of_project("acme")
        assert (600, 0, "paused") == (queue.backlog, len(queue.ready), node.wait_rules.reason(queue) or "paused")
        change(world, node, topic())
        await world.all_gone()
        assert 603 == len(world.handled)


async def test_pause_unloads_payloads_and_keeps_the_order():
    """X4, M."""
    seen = []
    async with World() as world:
        await world.put_many(300)
        node = await world.node(lambda message: seen.append(message.sequence), concurrency=1)
        await until(lambda: len(seen) > 20)
        change(world, node, topic(state="paused"))
        await turns()
        held = node.limits.used_bytes
        change(world, node, topic())
        await world.all_gone()
        assert 0 == held
        assert list(range(1, 301)) == seen


async def test_backlog_waits_for_the_topic_of_its_project():
    async with World(bolt=topic()) as world:
        await world.put_many(10)
        node = await world.node()
        await until(lambda: node.backlog == 10)
        assert [] == world.handled
        change(world, node, topic())
        await world.all_gone()
        assert 10 == len(world.handled)


async def test_unroutable_messages_are_dead_lettered():
    """Each with a reason."""
    async with World() as world:
        for subject in ("acme.abc.mid", "acme.0.urgent", "ac$me.0.mid", "acme.007.mid", "acme.1e3.low"):
            await world.store.put(f"lanes.online.0.{subject}", b"", b"body")
        await world.put()
        node = await world.node()
        await world.all_gone()
        assert (1, 5) == (node.counters.handled, node.counters.stray)
        reasons = {h.value(dead.headers, h.REASON) for dead in world.dead()}
        assert 5 == len(reasons)
        assert {names.dead_subject("online", "_stray")} == {dead.subject for dead in world.dead()}


async def test_message_deleted_in_the_spill_does_not_pin_the_watermark():
    """E12: it is counted as missing."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(300)
        node = await world.node(
            handle, concurrency=1, limits=MemoryBudget(read_ahead=4, index=10), tuning=NodeTuning(pinned_for=0)
        )
        await until(lambda: node.backlog == 299)
        for sequence in (100, 200, 201, 300):
            await world.store.delete(world.busy_lane, sequence)
        gate.set()
        lane = world.busy_lane
        await until(lambda: node.partitions[lane.partition].lane.removal.durable_watermark == 300)
        assert (296, 4) == (len(world.handled), node.counters.missing)
