"""The gate before the handlers: what may have killed a process starts once a record that names it is safe (X11).

The messages here may be handled once, so that each is recorded; but where a test says "fresh".
"""

import asyncio
import random
from types import SimpleNamespace

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId, busy_stream
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.node.handlers.attempt_reporter import AttemptReporter
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.handlers.worker import Workers
from evenlane.engine.node.handlers.worker_pool import WorkerPool
from evenlane.engine.node.signals.lease_trust import LeaseTrust
from evenlane.engine.node.signals.work_signal import WorkSignal
from evenlane.engine.node.work_source import WorkSource
from tests.support.lane_host import Host
from tests.support.node.gate_records import Reads, Records, place
from tests.support.node.keyed import Begun, Held, Keyed
from tests.support.node.two import P, Two
from tests.support.node.world import topic, turns
from tests.support.until import until

FAR = 1 << 62
ONCE = {"max_attempts": 1}
MOST_ASIDE = 1_024


@pytest.fixture
async def world():
    async with Keyed(acme=topic(**ONCE), shop=topic()) as made:  # of which each lies in one partition
        yield made


@pytest.mark.parametrize("seed", range(4))
async def test_what_starts_is_named_by_a_safe_record(world, seed):
    """X11: whatever comes and goes, and however long records take; one is on its way at a time."""
    draw = random.Random(seed)
    node = await world.node(world.handle, concurrency=draw.choice([1, 2, 8, 64]))
    records = Records(node)
    records.delays.extend(draw.choice([0, 0, 0.001, 0.004, 0.02]) for _ in range(1_000))

    async def act(message):
        assert place(message) in records.safe
        assert len(node.workers.running) <= node._concurrency
        for _ in range(draw.choice([0, 0, 1, 10])):
            await asyncio.sleep(0)
        assert place(message) in records.safe, "it is named as long as it runs"
        if draw.random() < 0.05:
            raise ValueError("no")

    world.act = act
    for _ in range(20):
        await world.put_keys([None] * draw.randint(1, 20), group=draw.choice([0, 1]))
        await asyncio.sleep(draw.choice([0, 0, 0.005]))
    await world.all_over()
    assert not [each for each in world.dead() if b"AssertionError" in each.headers]
    assert {1} == {each.attempt for every in world.begun.values() for each in every}
    assert 1 == records.most
    assert records.chosen <= node._concurrency
    assert 0 == node.gate.held


@pytest.mark.parametrize("kind", ["plain", "batch"])
async def test_no_handler_of_any_kind_starts_before(world, kind):
    """X11: nor one in a thread, nor one of batches."""
    seen = []

    @batch(max=4)
    def several(messages):
        seen.extend(messages)

    handle = several if kind == "batch" else seen.append
    node = await world.node(handle)
    records = Records(node)
    records.free.clear()
    await world.put_keys([None] * 10)
    await until(lambda: len(node.gate.messages) >= 8)
    await turns(100)
    assert [] == seen
    records.free.set()
    await world.all_over()
    assert 10 == len(seen)


async def test_one_record_names_all_that_came_meanwhile(world):
    """X11: so it costs a put a round trip, not one a message."""
    node = await world.node(world.handle, concurrency=64)
    records = Records(node)
    records.free.clear()
    await world.put_key(None)
    await until(lambda: records.count == 1)
    await world.put_keys([None] * 14)
    await until(lambda: node.gate.held == 15)
    assert 1 == records.count
    await turns(100)
    records.free.set()
    await world.all_over()
    assert records.count <= 4
    assert 15 == len(world.ids)


async def test_what_needs_no_record_passes_by(world):
    """X11: a fresh message starts though records take as long as they like, and none names it."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    recorded = await world.put_keys([None] * 4)
    await until(lambda: node.gate.held == 4)
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    assert 1 == records.count
    records.free.set()
    await world.all_over()
    assert {*recorded, *fresh} == set(world.ids)


@pytest.mark.parametrize("refusals", [1, 2])
async def test_a_record_that_is_refused_is_tried_again(world, refusals):
    """X11, L: what it named starts when a record with it is safe, once each."""
    node = await world.node(world.handle, concurrency=8)
    records = Records(node)
    answers = records.refusals = [asyncio.get_running_loop().create_future() for _ in range(refusals)]
    answers = [*answers]
    put = await world.put_keys([None] * 14)
    await until(lambda: node.gate.held == 8)
    for answer in answers:
        assert not world.begun
        answer.set_exception(Refused("no room"))
        await until(lambda: node.gate.failing and not records.under_way)
    await world.all_over()
    assert put == sorted(world.ids, key=put.index)
    assert {1} == {begun.attempt for every in world.begun.values() for begun in every}
    assert 0 == node.gate.held


@pytest.mark.parametrize("slots", [1, 8])
async def test_while_records_are_refused_only_what_needs_one_waits(world, slots):
    """X11, X9: it holds no slot meanwhile, and each begins once when records are taken again."""
    node = await world.node(world.handle, concurrency=slots)
    world.server.refuse("busy.")
    put = await world.put_keys([None] * 20)
    await until(lambda: node.gate.failing and not node.gate.held)
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    assert not world.begun["acme", 0, "mid", None]
    world.server.accept("busy.")
    await world.all_over()
    assert [Begun(own, 1) for own in sorted(put)] == sorted(world.begun["acme", 0, "mid", None])


async def test_a_record_is_written_though_there_is_always_something_fresh():
    """X11, L: handlers that don't block leave no moment in which there is nothing else to do."""
    lane = FedLane(LaneId("lanes", P), 1, MemoryBudget(), Host())
    queue = SimpleNamespace(pushed=False, ack_wait=0)
    records, handled, numbers = [], [], iter(range(1 << 40))

    def put(*record):
        records.append(len(handled))
        return asyncio.get_running_loop().create_future()

    def take(_now):
        number = next(numbers)
        return SimpleNamespace(
            recorded=number == 0, suspect=False, timed_out=False, place=(lane, number), lane=lane, generation=0,
            started=0, alive_at=0, queue=queue, _queue=queue,
        )  # fmt: skip

    async def handle(message):
        handled.append(message)

    def nothing(*_):
        """Nobody is told."""

    signal, trust, workers = WorkSignal(), LeaseTrust(), Workers(64)
    gate = InFlightGate(SimpleNamespace(put=put), "online", signal, SimpleNamespace(records_idle=nothing))
    calls = SimpleNamespace(batched=False, plain=handle, close=nothing)
    parts = SimpleNamespace(done=nothing, ended=nothing, batch_ended=nothing, succeeded=nothing)
    source = WorkSource(
        SimpleNamespace(take=take, is_expired=nothing), gate, workers, calls, parts, None, trust, signal
    )
    reporter = AttemptReporter(parts, gate, parts, parts)
    pool = WorkerPool(workers, source, calls, reporter, parts, parts, trust, signal, nothing)
    pool.start()
    await until(lambda: len(handled) > 5_000)
    await pool.drain(0)
    gate.close()
    assert records
    assert records[0] < 10


async def test_what_comes_to_a_queue_that_is_laid_down_is_not_read(world):
    """M: it would be laid down again, and the store is in trouble as it is."""
    node = await world.node(world.handle)
    world.server.refuse("busy.")
    await world.put_keys([None] * (MOST_ASIDE + 500))
    await until(lambda: node.queues.of("acme"))
    (queue,) = node.queues.of("acme")
    await until(lambda: len(node.eligibility.resting(queue)) >= MOST_ASIDE and not queue.loading)
    await turns(100)
    reads = Reads(node)
    await world.put_keys([None] * 20)
    await turns(100)
    assert 0 == reads.count
    world.server.accept("busy.")
    await world.all_over()


async def test_a_queue_is_laid_down_when_too_many_of_it_wait(world):
    """M, X11: 1,024 messages are set aside at the most, and the rest of a backlog stays where it is; all of it comes
    back, in turn.
    """
    node = await world.node(world.handle, concurrency=8)
    world.server.refuse("busy.")
    put = await world.put_keys([None] * (MOST_ASIDE + 500))
    await until(lambda: node.queues.of("acme"))
    (queue,) = node.queues.of("acme")
    await until(lambda: len(node.eligibility.resting(queue)) >= MOST_ASIDE)
    await turns(100)
    assert len(node.eligibility.resting(queue)) <= MOST_ASIDE + 1
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    world.server.accept("busy.")
    await world.all_over()
    assert put == [each.id for each in world.begun["acme", 0, "mid", None]]


async def test_what_has_ended_is_named_no_longer(world):
    """X11: though nothing else starts; else it would count as an attempt should the process die much later."""
    node = await world.node(world.handle)
    records = Records(node)
    await world.put_keys([None] * 5)
    await world.all_over()
    await until(lambda: not records.safe)
    last = records.count
    await asyncio.sleep(0.3)
    assert last == records.count, "nothing has changed since"
    world.act = held = Held(slow := await world.put_key(None))
    await world.begins(slow)
    quick = await world.put_key(None)
    await until(lambda: quick in world.ids)
    await until(lambda: len(records.safe) == 1)
    assert [place(message) for message in node.workers.running] == [*records.safe]
    held.go()


async def test_nor_is_what_ends_while_a_record_takes_long(world):
    """X11: the one that is on its way still names it, so there has to be another one."""
    put = await world.put_keys([None] * 2)
    world.act = held = Held(*put, "long")
    node = await world.node(world.handle)
    await until(lambda: len(node.workers.running) == 2)
    records = Records(node)
    records.free.clear()
    put.append(await world.put_key(None, id="long"))
    await until(lambda: records.under_way)
    held.go(put[0])
    await until(lambda: world.ids and node.gate._cleaning is None)
    records.free.set()
    await until(lambda: len(node.workers.running) == 2)
    running = {place(message) for message in node.workers.running}
    await until(lambda: records.safe == running, what=f"{running} alone to be named")
    held.go()


async def test_a_lease_that_ends_in_between(world):
    """O: chosen, and named, but not started any more; should it be renewed, each begins once."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    put = await world.put_keys([None] * 12)
    await until(lambda: node.gate.held == 8)
    node.trust(now_ns())
    records.free.set()
    await until(lambda: not node.gate.held)
    await until(lambda: not records.safe)
    await turns(50)
    assert not world.begun
    node.trust(FAR)
    await world.all_over()
    assert sorted(put) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_a_partition_that_goes_while_its_messages_stand_in_the_gate(kind):
    """Z1, X11: they weren't begun: nobody holds them, and the next owner begins each at its first attempt."""
    async with Two(acme=topic(**ONCE)) as world:
        a = await world.bare("a")
        await a.owned.open(P, 1)
        records = Records(a)
        records.free.clear()
        due = world.store.now() if kind == "later" else None
        put = [await world.put(due=due) for _ in range(12)]
        await until(lambda: a.gate.held == 8)
        record = await world.released(a, 1)
        assert not record.running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record] if record.lanes else [])
        await until(lambda: world.waiting() == 0)
        records.free.set()
        await until(lambda: not a.gate.held)
        assert {} == world.times("a")
        assert dict.fromkeys(put, 1) == world.times("b")
        assert {(1, False)} == {(message.attempt, message.suspect) for message in world.handled}


async def test_another_partition_goes_on_while_one_goes():
    """Z1: what is stale in the gate takes no slot from the others."""
    async with Keyed(acme=topic(**ONCE), shop=topic(**ONCE)) as world:
        node = await world.node(world.handle, concurrency=4)
        records = Records(node)
        records.free.clear()
        mine = await world.put_keys([None] * 4)
        await until(lambda: node.gate.held == 4)
        others = await world.put_keys([None] * 4, project="shop")
        node.owned.stop_partition(P)
        records.free.set()
        await until(lambda: set(others) <= set(world.ids))
        assert not set(mine) & set(world.ids)


async def test_a_drain_starts_nothing_that_stands_there(world):
    """Fault 3: it is the next owner's, at its first attempt."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    put = await world.put_keys([None] * 12)
    await until(lambda: node.gate.held == 8)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    records.free.set()
    assert await stopping
    assert not world.begun
    await world.node(world.handle)
    await world.all_over()
    assert put == world.ids
    assert {(1, False)} == {(message.attempt, message.suspect) for message in world.handled}


@pytest.mark.parametrize("slots", [1, 3, 8])
async def test_no_slot_is_idle_while_something_may_start(world, slots):
    """E19, K9: each that is free is taken again, whoever ends in whichever order."""
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
    await world.all_over()


async def test_slots_fill_when_the_handlers_end_all_at_once(world):
    """E19: and while records take their time."""
    draw = random.Random(1)
    wall = asyncio.Barrier(8)
    world.act = lambda message: wall.wait()
    node = await world.node(world.handle, concurrency=8)
    records = Records(node)
    records.delays.extend(draw.choice([0, 0.001, 0.01]) for _ in range(200))
    await world.put_keys([None] * 80)
    await world.all_over()  # the barrier lets none go unless eight run at once


async def test_each_process_has_a_record_of_its_own(world):
    """X11: one that is started anew under its node's id must not overwrite what its former life has left."""
    (own,) = await world.put_keys([None])
    world.act = Held(own)
    first = await world.node(world.handle, node_id="n")
    await world.begins(own)
    await world.crash(first)
    second = await world.node(world.handle, node_id="n")
    await until(lambda: second.workers.running)
    assert 2 == len(world.server.messages(busy_stream("online")))
