"""Ordered topics under small memory limits: the messages that wait behind their keys (K6, M)."""

import pytest

from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.queue_head import head_waits_since, place_of_head
from tests.support.node.keyed import Held, KeyedWorld, RandomHandler
from tests.support.until import until


@pytest.fixture
async def world():
    async with KeyedWorld() as made:
        yield made


@pytest.mark.parametrize(("count", "index"), [(60, 3), (400, 100)], ids=["few", "more than the kept payloads"])
async def test_index_bounds_messages_that_wait_behind_keys(world, count, index):
    """M: at most `limits.index` messages of a queue wait behind keys. Further ones stay in the stream, and all are
    handled.
    """
    put = await world.put_keys(["k"] * count)
    world.act = held = Held(put[0])
    node = await world.node(world.handle, concurrency=64, limits=MemoryBudget(index=index))
    queue = await until(lambda: next((q for q in node.queues.all() if q.order.full), None))
    assert index == queue.order.waiting
    held.go()
    await world.all_gone()
    assert put == world.ids
    assert not queue.order.full
    assert 0 == node.limits.used_bytes


async def test_retry_runs_while_the_index_is_full(world):
    """L: it overtakes the messages that were turned away."""

    async def act(message):
        if message.attempt < 3:
            raise ValueError("no")

    world.act = act
    put = await world.put_keys(["k"] * 20 + ["other"] * 5)
    await world.node(world.handle, limits=MemoryBudget(index=3))
    await world.all_gone()
    assert put == sorted(world.ids, key=put.index)
    world.assert_in_order()


async def test_full_index_delays_other_keys_without_losing_them(world):
    """M, L: they are in the queue behind messages that were turned away."""
    first = await world.put_key("k")
    world.act = held = Held(first)
    await world.put_keys(["k"] * 10)
    other = await world.put_key("other")
    node = await world.node(world.handle, limits=MemoryBudget(index=3))
    await until(lambda: any(queue.order.full for queue in node.queues.all()))
    assert other not in world.ids
    held.go()
    await world.all_gone()
    assert 12 == len(world.ids)
    world.assert_in_order()


async def test_retry_keeps_its_place_in_a_spilled_queue(world):
    """M, E13: with one sequence in the index and one payload in memory."""
    world.act = RandomHandler(11, hangs=False)
    await world.put_keys(["a", "b"] * 40)
    node = await world.node(world.handle, limits=MemoryBudget(index=1, read_ahead=1, payload_bytes=1))
    await world.all_gone()
    world.assert_in_order()
    assert 0 == node.limits.used_bytes


@pytest.mark.parametrize("payload_bytes", [1 << 20, 200])
async def test_message_behind_a_key_has_an_age(world, payload_bytes):
    """X8: the time since it waits is known, or its place in the stream, though its payload isn't in memory."""
    first = await world.put_key("one", size=150)
    await world.put_keys(["one"] * 2, size=150)
    world.act = held = Held(first)
    node = await world.node(world.handle, limits=MemoryBudget(payload_bytes=payload_bytes))
    await until(lambda: len(node.in_flight) == 1 and node.queues.of_project("acme")[0].backlog == 2)
    (queue,) = node.queues.of_project("acme")
    at, place = head_waits_since(queue), place_of_head(queue)
    assert at is not None or place == (world.busy_lane, 2)
    assert at is None or at <= node.store.now()
    held.go()
    await world.all_gone()
