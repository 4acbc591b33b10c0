"""A node's part of `backlog purge` and `cancel`: waiting messages, and no others, are settled as dropped (L)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.admin.backlog.drop import DropTask
from evenlane.engine.admin.backlog.drop_client import DropRequest, DropTarget
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.tuning import NodeTuning
from tests.support.node.gated import gated, looked
from tests.support.node.world import LANES, SECOND, World, topic, turns
from tests.support.until import until

MONTH = 30 * 86_400 * SECOND


async def drop(node, project="acme", **ask):
    task = DropTask(node, project, DropRequest(**ask))
    await asyncio.wait_for(task.run(), 30)
    assert ("", True) == (task.word.problem, task.word.done)
    return task.word


def targets(world, *ids):
    """Return the targets of the messages with these ids."""
    headers = {f"acme:{each}" for each in ids}
    return [
        DropTarget(lane.kind, lane.partition, message.sequence, message.at)
        for lane in LANES
        for message in world.server.messages(f"{lane.kind.upper()}_online_{lane.partition}")
        if h.value(message.headers, h.ID) in headers
    ]


async def backlog_is(node, count):
    await until(lambda: node.backlog == count, what=f"a backlog of {count}, not {node.backlog}")


@pytest.mark.parametrize("state", ["active", "paused"])
async def test_purge_drops_ready_indexed_and_spilled_messages(state):
    """L: put - handled - dropped = 0, wherever a message waits."""
    async with gated(acme=topic(state=state), other=topic()) as world:
        node = await world.node(world.handle, concurrency=4, limits=MemoryBudget(read_ahead=8, index=20))
        await world.put_many(300)
        await world.put_many(40, group=1, priority="low")
        await world.put_many(3, project="other", group=1)
        running = 4 if state == "active" else 3
        await until(lambda: len(node.workers.running) == running)
        mine = sum(message.project == "acme" for message in node.workers.running)
        result = await drop(node)
        assert (340 - mine, mine, [0, 1]) == (result.dropped, result.busy, sorted(result.partitions))
        world.gate.set()
        await world.all_gone()
        assert mine == sum(message.project == "acme" for message in world.handled)
        assert 3 == sum(message.project == "other" for message in world.handled)
        assert (340 - mine, 0) == (node.counters.dropped, node.counters.missing)


async def test_purge_drops_messages_that_feeds_have_not_delivered_yet():
    """L: after an outage of the store, feeds lag behind: messages put meanwhile are part of the backlog, too."""
    async with World(acme=topic(state="paused")) as world:
        node = await world.node()
        await world.put_many(10)
        await backlog_is(node, 10)
        world.server.disconnect(node.store)
        await world.put_many(7)
        world.server.reconnect(node.store)
        assert 17 == (await drop(node)).dropped
        await world.all_gone()
        assert 0 == node.backlog


async def test_message_put_after_a_purge_is_handled():
    async with gated(acme=topic(), other=topic()) as world:
        node = await world.node(world.handle, concurrency=2, limits=MemoryBudget(read_ahead=8, index=20))
        await world.put_many(100)
        await until(lambda: len(node.workers.running) == 2)
        result = await drop(node)
        fresh = await world.put_many(200)
        world.gate.set()
        await world.all_gone()
        assert (98, 202) == (result.dropped, len(world.handled))
        assert set(fresh) <= set(world.ids)


async def test_purge_of_one_priority_leaves_the_others():
    async with World(acme=topic(state="paused")) as world:
        node = await world.node()
        for priority in ("high", "mid", "low"):
            await world.put_many(5, priority=priority)
            await world.put(priority=priority, due=node.store.now() + MONTH)
            await world.put(priority=priority, due=node.store.now() + 60 * SECOND)
        await backlog_is(node, 18)
        assert 7 == (await drop(node, priority="mid")).dropped
        left = [message.subject.split(".")[5] for lane in LANES for message in await stored(world, lane)]
        assert 14 == len([priority for priority in left if priority != "mid"])


async def stored(world, lane):
    """Return the messages of a lane that aren't settled."""
    settled = (await world.settled(lane)).settled
    messages = world.server.messages(f"{lane.kind.upper()}_online_{lane.partition}")
    return [message for message in messages if message.sequence not in settled]


async def test_purge_drops_delayed_messages_of_any_due_time():
    """K1: in a minute, which are fed, and in months."""
    async with World() as world:
        node = await world.node()
        now = node.store.now()
        for number in range(20):
            await world.put(due=now + 60 * SECOND + number)
            await world.put(due=now + MONTH + number * 3600 * SECOND)
        await backlog_is(node, 20)
        assert 40 == (await drop(node)).dropped
        await world.all_gone()
        assert (0, []) == (node.backlog, world.handled)


async def test_purge_spares_a_delayed_message_in_flight():
    """It is in the delay stream, among the dropped messages."""
    async with gated(acme=topic()) as world:
        node = await world.node(world.handle)
        now = node.store.now()
        running = await world.put(due=now + SECOND // 50)
        await world.put(due=now + 60 * SECOND)
        await until(lambda: node.workers.running)
        result = await drop(node)
        assert (1, 1) == (result.dropped, result.busy)
        world.gate.set()
        await world.all_gone()
        assert [running] == world.ids
        assert (1, 1) == (node.counters.handled, node.counters.dropped)


async def test_dropped_messages_stay_dropped_after_a_crash():
    async with World(acme=topic(state="paused")) as world:
        node = await world.node(limits=MemoryBudget(read_ahead=4, index=10))
        await world.put_many(100)
        await world.put(due=node.store.now() + MONTH)
        await backlog_is(node, 100)
        assert 101 == (await drop(node)).dropped
        await world.crash(node)
        world.topics["acme"] = topic()
        await world.node()
        await world.put(id="after")
        await until(lambda: world.ids == ["after"])
        await world.all_gone()
        assert ["after"] == world.ids


async def test_purge_drops_a_backlog_during_its_catch_up():
    """At a takeover, a large backlog is read next to a tail feed."""
    async with World(acme=topic(state="paused")) as world:
        await world.put_many(300)
        partition = world.busy_lane.partition
        node = await world.node(tuning=NodeTuning(tail_beyond=200))
        assert node.partitions[partition].lane.is_catching_up
        dropping = asyncio.create_task(drop(node))
        await turns()  # it has begun
        node.partitions[partition].catch_up()
        fresh = await world.put_many(10)
        assert 300 == (await dropping).dropped
        left = [message for lane in LANES for message in await stored(world, lane)]
        assert [f"acme:{each}" for each in fresh] == [h.value(message.headers, h.ID) for message in left]
        world.topics["acme"] = topic()
        node.on_topic_change("acme", world.topics["acme"])
        await world.all_gone()
        assert sorted(fresh) == sorted(world.ids)


async def test_purge_waits_for_an_unreachable_store():
    """Spilled messages are only in the store."""
    async with World(acme=topic(state="paused")) as world:
        node = await world.node(limits=MemoryBudget(read_ahead=4, index=10))
        await world.put_many(100)
        await backlog_is(node, 100)
        world.server.disconnect(node.store)
        dropping = asyncio.create_task(drop(node))
        await turns(100)
        assert not dropping.done()
        world.server.reconnect()
        assert 100 == (await dropping).dropped
        await world.all_gone()


@asynccontextmanager
async def failing_key():
    """Three messages of one key. The first has failed and waits ten minutes for its next attempt."""
    async with World(acme=topic(ordered=True, backoff={"base": 600, "factor": 1, "jitter": 0})) as world:

        async def fail(message):
            world.handled.append(message)
            if message.body == b"0":
                raise ValueError

        world.one = await world.node(fail)
        world.of_key = [await world.put(b"%d" % number, headers={h.KEY: "k"}) for number in range(3)]
        await until(lambda: world.one.counters.failed == 1)
        yield world


async def test_purge_of_a_failed_message_frees_its_key():
    async with failing_key() as world:
        assert 3 == (await drop(world.one)).dropped
        after = await world.put(b"after", headers={h.KEY: "k"})
        await world.all_gone()
        assert [world.of_key[0], after] == world.ids


async def test_cancelling_the_failed_head_of_a_key_frees_the_key():
    async with failing_key() as world:
        head = targets(world, world.of_key[0])
        assert 1 == (await drop(world.one, targets=head)).dropped
        await world.all_gone()
        assert world.of_key == world.ids
        assert (2, 1) == (world.one.counters.handled, world.one.counters.dropped)


# ---- cancel


async def test_cancel_drops_single_messages_wherever_they_wait():
    async with gated(acme=topic()) as world:
        node = await world.node(world.handle, concurrency=2, limits=MemoryBudget(read_ahead=4, index=10))
        ids = await world.put_many(60)
        now = node.store.now()
        soon, far = await world.put(due=now + 60 * SECOND), await world.put(due=now + MONTH)
        await until(lambda: len(node.workers.running) == 2 and node.backlog == 59)
        out = ids[3], ids[8], ids[50], soon, far
        result = await drop(node, targets=targets(world, *out))
        assert (5, 0, 0) == (result.dropped, result.busy, result.gone)
        world.gate.set()
        await world.all_gone()
        assert sorted(set(ids) - set(out)) == sorted(world.ids)
        assert (57, 5, 0) == (node.counters.handled, node.counters.dropped, node.counters.missing)


async def test_cancelled_delayed_message_is_not_counted():
    """X8: neither as delayed nor as the next due message."""
    async with gated(acme=topic()) as world:
        node = await world.node(world.handle)
        soon, later = [await world.put(due=node.store.now() + delay * SECOND) for delay in (20, 50)]
        await until(lambda: node.backlog == 2)
        assert 1 == (await drop(node, targets=targets(world, soon))).dropped
        part = (await looked(node)).parts["mid"]
        assert (1, True) == (part.delayed, 40 < part.next_due_s <= 50)
        assert 1 == (await drop(node, targets=targets(world, later))).dropped
        assert (0, {}) == ((part := (await looked(node)).parts["mid"]).delayed, part.reasons)


async def test_cancel_spares_messages_in_flight_and_handled():
    async with gated(acme=topic()) as world:
        node = await world.node(world.handle, concurrency=1)
        first, _ = await world.put_many(2)
        await until(lambda: node.workers.running)
        (target,) = targets(world, first)
        result = await drop(node, targets=[target])
        assert (0, 1, 0) == (result.dropped, result.busy, result.gone)
        world.gate.set()
        await until(lambda: len(world.handled) == 2)
        result = await drop(node, targets=[target])
        assert (0, 0, 1) == (result.dropped, result.busy, result.gone)
        await world.all_gone()
        assert (2, 0) == (node.counters.handled, node.counters.dropped)


async def test_cancelling_twice_drops_once():
    async with World(acme=topic(state="paused")) as world:
        node = await world.node()
        (one,) = await world.put_many(1)
        await until(lambda: node.backlog == 1)
        target = targets(world, one)
        assert [1, 0] == [(await drop(node, targets=target)).dropped for _ in range(2)]
        assert 1 == node.counters.dropped


async def test_cancel_spares_another_message_of_the_same_sequence():
    """The stream was replaced after the target was found."""
    async with World(acme=topic(state="paused")) as world:
        node = await world.node()
        (one,) = await world.put_many(1)
        await until(lambda: node.backlog == 1)
        (target,) = targets(world, one)
        result = await drop(node, targets=[DropTarget(target.kind, target.partition, target.sequence, target.at - 1)])
        assert (0, 1) == (result.dropped, result.gone)


async def test_targets_of_partitions_of_other_nodes_are_ignored():
    async with World() as world:
        node = await world.node()
        result = await drop(node, targets=[DropTarget("lanes", 7, 1, 0)])
        assert ([], 0, 0) == (result.partitions, result.dropped, result.gone)
        assert LaneId("lanes", 7) not in LANES
