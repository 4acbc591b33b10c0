"""Ordered topics on a node: what ends a message of a key, and what survives an end of its node (issue 5, item 4)."""

import random

import pytest

from evenlane.engine.core.message.message import Reject, Retry
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import KEYS, Begun, Chance, Held, Keyed, ordered
from tests.support.node.world import SECOND
from tests.support.until import until


@pytest.fixture
async def world():
    async with Keyed() as made:
        yield made


@pytest.mark.parametrize("where", ["waits for its next attempt", "behind its key"])
async def test_one_that_is_missing_frees_its_key(world, where):
    """E12: deleted from the stream by hand, it is noticed when its turn comes, counted, and its key goes on."""
    first, second, third = await world.put_keys(["k"] * 3)
    held = Held(first)

    async def act(message):
        await held(message)
        if message.id == first and where == "waits for its next attempt":
            raise Retry(after=0.1)

    world.act = act
    node = await world.node(world.handle, limits=MemoryBudget(payload_bytes=1))
    await world.begins(first)
    await until(lambda: sum(queue.order.waiting for queue in node.queues.all()) == 2)
    lane = world.busy_lane
    if where == "behind its key":
        await world.store.delete(lane, 2)
        held.go()
        await world.all_over()
        assert [first, third] == world.ids
    else:
        held.go()
        await until(lambda: list(node.eligibility.retrying()))
        await world.store.delete(lane, 1)
        await world.all_over()
        assert [second, third] == world.ids
    assert 1 == node.counters.missing


async def test_expired_ones_free_their_key(world):
    """K5: those behind a long handler outlive their time; the last one doesn't."""
    first = await world.put_key("k")
    world.act = held = Held(first)
    node = await world.node(world.handle)
    await world.begins(first)
    past = str(world.store.now() + SECOND // 5)
    old = [await world.put(headers={h.KEY: "k", h.EXPIRES: past}) for _ in range(3)]
    last = await world.put_key("k")
    await until(lambda: sum(queue.order.waiting for queue in node.queues.all()) == 4)
    await until(lambda: world.store.now() > int(past))
    held.go()
    await world.all_over()
    assert [first, last] == world.ids
    assert 3 == node.counters.expired
    assert not set(old) & set(world.ids)


async def test_one_that_expires_between_its_attempts_frees_its_key(world):
    """K5, L: it has its key, and is never handled again."""

    async def act(message):
        if message.id == first:
            raise Retry(after=0.3)

    world.act = act
    past = str(world.store.now() + SECOND // 4)
    first = await world.put(headers={h.KEY: "k", h.EXPIRES: past})
    second = await world.put_key("k")
    node = await world.node(world.handle)
    await world.all_over()
    assert [second] == world.ids
    assert [Begun(first, 1), Begun(second, 1)] == world.begun["acme", 0, "mid", "k"]
    assert 1 == node.counters.expired


async def test_a_dead_letter_frees_its_key_only_when_it_is_safe(world):
    """K4, L: while the stream of dead letters refuses, the key waits, and other keys go on."""

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
    await world.all_over()
    assert [first, second] == world.ids_of("k")
    assert 1 == len(world.dead())


@pytest.mark.parametrize("end", ["a crash", "a stop"])
async def test_attempts_and_the_time_of_the_next_one_survive(world, end):
    """K2, E13, D: with no copy to count them; the key still waits after it."""
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
        await until(lambda: not any(lane.log.unsynced_count for p in node.partitions.values() for lane in p.both))
        await until(lambda: not node.gate._dirty)
        await world.crash(node)
    else:
        assert await world.stop(node)
    await world.node(world.handle)
    await world.all_over()
    assert [1, 2, 3] == [attempt for attempt, _ in times]
    assert times[2][1] - times[1][1] >= 1.5 * SECOND
    assert [first, second] == world.ids_of("k")


async def test_crash_after_crash_keeps_the_order(world):
    """E11, E14, L: what was in flight comes again, at its place; nothing of a key overtakes it."""
    world.act = Chance(7, hangs=False)
    world.topics["acme"] = ordered(max_attempts=5)
    draw = random.Random(7)
    for round_ in range(4):
        await world.put_keys(draw.choices(KEYS, k=25))
        node = await world.node(world.handle, concurrency=64, settle_interval=0.01)
        await until(lambda round_=round_: len(set(world.ids)) > 20 * round_)
        await world.crash(node)
        world.running.clear()
    await world.node(world.handle)
    await world.all_over()
    dead = {h.value(each.headers, h.ID).split(":")[1] for each in world.dead()}
    assert {own for put in world.put_to.values() for own in put} == dead | set(world.ids)
    assert [] == world.together
    for (*_, key), put in world.put_to.items():
        if key is not None:
            firsts = list(dict.fromkeys(world.ids_of(key)))  # what was done but not settled may come again
            assert [own for own in put if own in set(firsts)] == firsts


async def test_a_stream_that_is_replaced_frees_its_keys(world):
    """L, E12: the key of a message that was out of the old stream, and of those behind it."""
    put = await world.put_keys(["k"] * 4)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    await until(lambda: any(queue.order.waiting == 3 for queue in node.queues.all()))
    world.server.replace("online", world.busy_lane)
    new = await world.put_keys(["k"] * 3)
    await until(lambda: set(new) <= set(world.ids))
    assert new == [own for own in world.ids if own in new]
    held.go()
    await world.all_over()
    assert 0 == node.limits.held
