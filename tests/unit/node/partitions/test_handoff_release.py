"""The previous owner of a partition, after it has released or lost it (P6)."""

import asyncio

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.scheduler.interface import start_next
from tests.support.node.two import GROUPS, P, Two, due_soon
from tests.support.node.world import turns
from tests.support.until import until


@pytest.fixture
async def world():
    async with Two() as made:
        yield made


async def test_partition_lost_during_its_handoff_is_no_failure(world):
    """O."""
    message_id = await world.put()
    world.slow.add(("a", message_id))
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: a.workers.running)
    a.owned.stop_partition(P)
    handoff = asyncio.ensure_future(a.owned.hand_off(P, 1, 0.05))
    await turns(3)
    await a.owned.drop_partition(P, 1)
    assert {} == await handoff
    world.gate.set()
    await until(lambda: not a.workers.running)
    assert (0, 1) == (a.counters.handled, a.counters.void)


async def test_message_whose_thread_never_called_the_handler_is_released(world):
    """L: the lease ended before the call, and the partition was released."""
    begun, gate = [], asyncio.Event()
    a = await world.bare("a", handler=begun.append)
    run = a._calls.run_in_thread

    async def late(call):
        await gate.wait()
        return await run(call)

    a._calls.run_in_thread = late
    await world.put()
    await a.owned.open(P, 1)
    await until(lambda: a.workers.running)
    record = await world.released(a, 1)
    assert [1] == record.lanes["lanes"].running
    published = []
    world.lanes["lanes"].on_change = lambda: published.append(world.record().is_running)
    a.trust(0)
    gate.set()
    await until(lambda: not world.record().is_running, what="the previous owner to release the message")
    assert [] == world.record().lanes["lanes"].done
    assert [False] == published
    assert [] == begun


async def test_release_frees_the_memory_of_a_partition(world):
    """M: payloads, the scheduler's queues, and the node's."""
    limits = MemoryBudget()
    for n in range(300):
        await world.put(b"x" * 100, group=GROUPS[n % len(GROUPS)], priority=("low", "mid")[n % 2])
    for _ in range(20):
        await world.put(b"x" * 100, due=due_soon())
    world.slow = {("*", f"m{n}") for n in range(1, 321)}
    a = await world.bare("a", limits=limits)
    await a.owned.open(P, 1)
    await until(lambda: len(a.workers.running) == 8 and limits.used_bytes > 0)
    record = await world.released(a, 1)
    assert (8, 0) == (sum(len(lane.running) for lane in record.lanes.values()), limits.used_bytes)
    assert ([], 0, 0) == (list(a.queues.all()), a.queues.projects, a.backlog)
    world.gate.set()
    await until(lambda: not a.workers.running)
    assert None is start_next(a.scheduler, now_ns())
    assert 8 == len(world.begun)
    assert 0 == limits.used_bytes


async def test_read_that_ends_after_the_release_is_ignored(world):
    """M, O."""
    limits = MemoryBudget(read_ahead=4)
    await world.put_many(50)
    a = await world.bare("a", limits=limits, concurrency=1)
    gate, asked, answered, get = asyncio.Event(), [], [], a.store.get

    async def late(lane, sequences):
        asked.append(sequences)
        found = await get(lane, sequences)
        await gate.wait()
        answered.append(sequences)
        return found

    a.store.get = late
    await a.owned.open(P, 1)
    await until(lambda: asked and not a.workers.running)
    before = len(world.begun)
    await world.released(a, 1)
    gate.set()
    await until(lambda: len(answered) == len(asked))
    await turns()
    assert (before, 0) == (len(world.begun), limits.used_bytes)
    assert None is start_next(a.scheduler, now_ns())
    b = await world.bare("b")
    await b.owned.open(P, 2)
    await world.all_gone()
    assert 50 == len(world.begun)


async def test_partition_returns_to_an_earlier_owner(world):
    """Z1: nothing is left there of the first time."""
    await world.put_many(100)
    a, b = await world.bare("a"), await world.bare("b")
    for epoch in range(1, 12, 2):
        for name, node in (("a", a), ("b", b)):
            await node.owned.open(P, epoch + (name == "b"), [])
            await world.put_many(20)
            await turns(epoch)
            await world.released(node, epoch + (name == "b"))
    await a.owned.open(P, 50)
    await world.all_gone()
    assert 100 + 20 * 12 == len(set(world.ids)) == len(world.begun)
