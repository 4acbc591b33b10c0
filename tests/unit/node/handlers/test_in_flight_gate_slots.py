"""The gate before the handlers: leases, handoffs and drains while messages are in it, and the slots (X11, E19).

Messages of acme have one attempt, so each is recorded.
"""

import asyncio
import random

import pytest

from evenlane.engine.base.clock import now_ns
from tests.support.node.gate_records import Records
from tests.support.node.keyed import Held, KeyedWorld
from tests.support.node.two import P, Two
from tests.support.node.world import topic, turns
from tests.support.until import until

FAR = 1 << 62
ONCE = {"max_attempts": 1}


@pytest.fixture
async def world():
    async with KeyedWorld(acme=topic(**ONCE), shop=topic()) as made:
        yield made


async def test_message_in_the_gate_does_not_start_after_the_lease(world):
    """O: though a record names it. If the lease is renewed, each message starts once."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    put = await world.put_keys([None] * 12)
    await until(lambda: node.gate.occupied == 8)
    node.trust(now_ns())
    records.free.set()
    await until(lambda: not node.gate.occupied)
    await until(lambda: not records.safe)
    await turns(50)
    assert not world.begun
    node.trust(FAR)
    await world.all_gone()
    assert sorted(put) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_handoff_releases_messages_in_the_gate(kind):
    """Z1, X11: they haven't started, so the next owner runs each in its first attempt."""
    async with Two(acme=topic(**ONCE)) as world:
        a = await world.bare("a")
        await a.owned.open(P, 1)
        records = Records(a)
        records.free.clear()
        due = world.store.now() if kind == "later" else None
        put = [await world.put(due=due) for _ in range(12)]
        await until(lambda: a.gate.occupied == 8)
        record = await world.released(a, 1)
        assert not record.is_running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record] if record.lanes else [])
        await world.all_gone()
        records.free.set()
        await until(lambda: not a.gate.occupied)
        assert {} == world.times("a")
        assert dict.fromkeys(put, 1) == world.times("b")
        assert {(1, False)} == {(message.attempt, message.is_suspect) for message in world.handled}


async def test_stale_messages_in_the_gate_occupy_no_slot():
    """Z1: while one partition is handed over, messages of another one run."""
    async with KeyedWorld(acme=topic(**ONCE), shop=topic(**ONCE)) as world:
        node = await world.node(world.handle, concurrency=4)
        records = Records(node)
        records.free.clear()
        mine = await world.put_keys([None] * 4)
        await until(lambda: node.gate.occupied == 4)
        others = await world.put_keys([None] * 4, project="shop")
        node.owned.stop_partition(P)
        records.free.set()
        await until(lambda: set(others) <= set(world.ids))
        assert not set(mine) & set(world.ids)


async def test_drain_starts_no_message_of_the_gate(world):
    """Fault 3: the next owner runs it in its first attempt."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    put = await world.put_keys([None] * 12)
    await until(lambda: node.gate.occupied == 8)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    records.free.set()
    assert await stopping
    assert not world.begun
    await world.node(world.handle)
    await world.all_gone()
    assert put == world.ids
    assert {(1, False)} == {(message.attempt, message.is_suspect) for message in world.handled}


@pytest.mark.parametrize("slots", [1, 3, 8])
async def test_no_slot_is_idle_while_a_message_may_start(world, slots):
    """E19, K9: handlers end in random order, and each free slot is used again."""
    draw = random.Random(slots)
    put = await world.put_keys([None] * 40)
    world.act = held = Held(*put)
    node = await world.node(world.handle, concurrency=slots)
    for left in range(40, 0, -1):
        await until(
            lambda left=left: len(node.workers.running) == min(slots, left), what=f"{slots} to run, {left} left"
        )
        held.go(draw.choice(node.workers.running).id)
        await until(lambda left=left: len(world.handled) == 41 - left)
    await world.all_gone()


async def test_slots_fill_again_when_all_handlers_end_at_once(world):
    """E19: though records are slow."""
    draw = random.Random(1)
    wall = asyncio.Barrier(8)
    world.act = lambda message: wall.wait()
    node = await world.node(world.handle, concurrency=8)
    records = Records(node)
    records.delays.extend(draw.choice([0, 0.001, 0.01]) for _ in range(200))
    await world.put_keys([None] * 80)
    await world.all_gone()  # the barrier opens only if eight run at once
