"""Ordered topics on a node: the ways in which a message frees its key, and the order across restarts (K6)."""

import random

import pytest

from evenlane.engine.core.message.handler_exceptions import Reject, Retry
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import KEYS, Begun, Held, KeyedWorld, RandomHandler, ordered
from tests.support.node.world import SECOND
from tests.support.until import until


@pytest.fixture
async def world():
    async with KeyedWorld() as made:
        yield made


@pytest.mark.parametrize("where", ["waits for its next attempt", "behind its key"])
async def test_deleted_message_frees_its_key(world, where):
    """E12: it is noticed when its turn comes, and counted."""
    first, second, third = await world.put_keys(["k"] * 3)
    held = Held(first)

    async def act(message):
        await held(message)
        if message.id == first and where == "waits for its next attempt":
            raise Retry(after=0.1)

    world.act = act
    node = await world.node(world.handle, limits=MemoryBudget(payload_bytes=1))
    await world.until_begun(first)
    await until(lambda: sum(queue.order.waiting for queue in node.queues.all()) == 2)
    lane = world.busy_lane
    if where == "behind its key":
        await world.store.delete(lane, 2)
        held.go()
        await world.all_gone()
        assert [first, third] == world.ids
    else:
        held.go()
        await until(lambda: list(node.eligibility.iter_retrying()))
        await world.store.delete(lane, 1)
        await world.all_gone()
        assert [second, third] == world.ids
    assert 1 == node.counters.missing


async def test_message_that_expires_between_attempts_frees_its_key(world):
    """K5, L: it isn't handled again."""

    async def act(message):
        if message.id == first:
            raise Retry(after=0.3)

    world.act = act
    first = await world.put(headers={h.KEY: "k", h.EXPIRES: str(world.store.now() + SECOND // 4)})
    second = await world.put_key("k")
    node = await world.node(world.handle)
    await world.all_gone()
    assert [second] == world.ids
    assert [Begun(first, 1), Begun(second, 1)] == world.begun["acme", 0, "mid", "k"]
    assert 1 == node.counters.expired


async def test_dead_letter_frees_its_key_once_it_is_stored(world):
    """K4, L: while the dead-letter stream refuses, the key waits, and other keys run."""

    async def act(message):
        if message.id == first:
            raise Reject("not wanted")

    world.act = act
    world.server.refuse("dead.")
    first, second = await world.put_keys(["k"] * 2)
    other = await world.put_key("other")
    node = await world.node(world.handle)
    await until(lambda: other in world.ids and node.failures.pending)
    assert [first] == world.ids_of("k")
    world.server.accept("dead.")
    await world.all_gone()
    assert [first, second] == world.ids_of("k")
    assert 1 == len(world.dead())


@pytest.mark.parametrize("end", ["a crash", "a stop"])
async def test_attempts_and_retry_time_survive_a_restart(world, end):
    """K2, E13, D: no copy counts them, and the key still waits afterwards."""
    times = []

    async def act(message):
        if message.id == first:
            times.append((message.attempt, world.store.now()))
            if message.attempt < 3:
                raise Retry(after=0 if message.attempt == 1 else 1.5)

    world.act = act
    first, second = await world.put_keys(["k"] * 2)
    node = await world.node(world.handle)
    await until(lambda: len(times) == 2)
    if end == "a crash":
        await until(lambda: not any(lane.log.unsynced_count for p in node.partitions.values() for lane in p.lanes))
        await world.crash(node)
    else:
        assert await world.stop(node)
    await world.node(world.handle)
    await world.all_gone()
    assert [1, 2, 3] == [attempt for attempt, _ in times]
    assert times[2][1] - times[1][1] >= 1.5 * SECOND
    assert [first, second] == world.ids_of("k")


async def test_repeated_crashes_keep_the_order(world):
    """E11, E14, L: messages that were in flight are handled again in their places, and nothing of their keys overtakes
    them.
    """
    world.act = RandomHandler(7, hangs=False)
    world.topics["acme"] = ordered(max_attempts=5)
    draw = random.Random(7)
    for round_ in range(4):
        await world.put_keys(draw.choices(KEYS, k=25))
        node = await world.node(world.handle, concurrency=64, settle_interval=0.01)
        await until(lambda round_=round_: len(set(world.ids)) > 20 * round_)
        await world.crash(node)
        world.running.clear()
    await world.node(world.handle)
    await world.all_gone()
    dead = {h.value(each.headers, h.ID).split(":")[1] for each in world.dead()}
    assert {message_id for put in world.put_by_key.values() for message_id in put} == dead | set(world.ids)
    assert [] == world.overlaps
    for (*_, key), put in world.put_by_key.items():
        if key is not None:
            firsts = list(dict.fromkeys(world.ids_of(key)))  # handled but unsettled messages may run again
            assert [message_id for message_id in put if message_id in set(firsts)] == firsts


async def test_replaced_stream_frees_its_keys(world):
    """L, E12: the keys of messages of the old stream that run or wait."""
    put = await world.put_keys(["k"] * 4)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    await until(lambda: any(queue.order.waiting == 3 for queue in node.queues.all()))
    world.server.replace("online", world.busy_lane)
    new = await world.put_keys(["k"] * 3)
    await until(lambda: set(new) <= set(world.ids))
    assert new == [message_id for message_id in world.ids if message_id in new]
    held.go()
    await world.all_gone()
    assert 0 == node.limits.used_bytes
