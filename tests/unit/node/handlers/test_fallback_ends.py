"""A fallback whose process dies or stops, and its message in the in-flight record (X11, E13)."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.handler_exceptions import Reject
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.signals.work_signal import WorkSignal
from tests.support.lane_host import Host
from tests.support.node.fallback import FallbackWorld, raising
from tests.support.node.gate_records import Records, place_of
from tests.support.node.keyed import QUICK, Held, KeyedWorld, ordered
from tests.support.node.two import P, Two
from tests.support.node.world import topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with FallbackWorld() as made:
        yield made


@pytest.mark.parametrize("reject", [False, True], ids=["failed", "rejected"])
async def test_message_of_a_deadly_fallback_is_dead_lettered(world, reject):
    """F8, X11: all deaths but the first count as attempts. In the end the message is dead-lettered without the
    fallback."""
    most = 4
    world.topics["acme"] = topic(max_attempts=most, backoff=QUICK)
    attempts = []

    async def fallback_act(message):
        attempts.append(message.attempt)
        await asyncio.Event().wait()

    world.fallback_act = fallback_act
    if reject:
        world.act = raising(Reject("not wanted"))
    await world.put_keys([None])
    for deaths in range(1, most + 3):
        node = await world.node_with_fallback()
        await until(lambda deaths=deaths: len(attempts) == deaths or world.waiting() == 0)
        if world.waiting() == 0:
            break
        await world.crash(node)
    assert 0 == world.waiting()
    assert ([1, 1, 2, 3, 4] if reject else [4, 4, 5]) == attempts
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {attempts[-1]}"


@pytest.mark.parametrize("reject", [False, True], ids=["failed", "rejected"])
async def test_message_of_a_deadly_fallback_among_others_is_dead_lettered(world, reject):
    """F8, X11: it is the record's suspect until its fallback has ended, so there are at most N + 1 deaths."""
    world.topics["acme"], world.topics["shop"] = topic(max_attempts=2, backoff=QUICK), topic()
    attempts, alongside = [], asyncio.Event()

    async def fallback_act(message):
        attempts.append(message.attempt)
        await asyncio.Event().wait()

    async def act(message):
        if message.project == "acme":
            await alongside.wait()
            raise Reject("not wanted") if reject else ValueError("no good")
        if not message.recorded:  # those in flight at the last death end at once
            alongside.set()
            await asyncio.Event().wait()

    world.fallback_act, world.act = fallback_act, act
    await world.put_keys([None])
    for deaths in range(1, 5):
        alongside.clear()
        node = await world.node_with_fallback()
        await world.put_key(None, project="shop")
        await until(lambda deaths=deaths: len(attempts) == deaths or world.dead())
        if world.dead():
            break
        await world.crash(node)
    assert ([1, 1, 2] if reject else [2, 2, 3]) == attempts
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {attempts[-1]}"


async def test_no_suspect_starts_while_the_fallback_of_another_one_runs(world):
    """X11: otherwise a death would accuse the other suspect, and not the fallback."""
    world.topics["acme"] = topic(max_attempts=9, backoff=QUICK)
    message_id, other = await world.put_keys([None] * 2)
    world.act = Held(message_id, other)
    for _ in range(2):
        node = await world.node_with_fallback()
        await until(lambda node=node: len(node.workers.running) == 2)
        await world.crash(node)

    async def act(message):
        if message.id == message_id:
            raise Reject("not wanted")

    world.act, world.fallback_act = act, (held := Held(message_id))
    node = await world.node_with_fallback()
    await until(lambda: world.taken)
    fresh = await world.put_keys([None] * 20)
    await until(lambda: set(fresh) <= set(world.ids))
    assert other not in world.ids
    held.go()
    await world.all_gone()
    assert {other, *fresh} == set(world.ids)
    assert [(message_id, 2)] == [taken[:2] for taken in world.taken]


async def test_fallback_is_named_by_a_stored_record(world):
    """X11: otherwise its death would count no attempt."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.node_with_fallback()
    records = Records(node)

    async def fallback_act(message):
        assert place_of(message) in records.safe

    world.fallback_act = fallback_act
    await world.put_keys([None] * 40)
    await world.all_gone()
    assert (40, 0) == (node.counters.fallen_back, len(world.dead()))
    await until(lambda: not records.safe)


async def test_fallback_waits_for_its_record(world):
    """X11: its message isn't dead-lettered meanwhile."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.node_with_fallback()
    records = Records(node)

    async def act(message):
        records.free.clear()
        raise ValueError("no good")

    world.act = act
    await world.put_keys([None])
    await until(lambda: node.failures.pending and not records.free.is_set() and not node.workers.running)
    await until(lambda: records.under_way)
    assert [] == world.taken
    records.free.set()
    await world.all_gone()
    assert 1 == len(world.taken)


async def test_stop_during_fallbacks_loses_nothing(world):
    """L: if one ends in time, its message is settled. Otherwise the message is handled again, or dead-lettered after
    its last attempt.
    """
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    quick, slow = await world.put_keys([None] * 2)
    world.fallback_act = held = Held(quick, slow)
    node = await world.node_with_fallback()
    await until(lambda: len(world.taken) == 2)
    stopping = asyncio.ensure_future(node.stop(0.4))
    held.go(quick)
    assert not await stopping
    world.nodes.remove(node)
    await node.store.close()
    assert [] == world.dead()
    world.act = world.nothing
    await world.node(world.handle)
    await world.all_gone()
    assert [slow] == [*world.ids, *(h.value(each.headers, h.ID).split(":")[1] for each in world.dead())]


async def test_stop_waits_for_a_fallback(world):
    """Fault 3."""
    (message_id,) = await world.put_keys([None])
    world.fallback_act = held = Held(message_id)
    node = await world.node_with_fallback()
    await until(lambda: world.taken)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    held.go()
    assert await stopping
    await world.node(world.handle)
    assert 1 == node.counters.fallen_back
    await world.all_gone()
    assert [] == world.ids


@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_handoff_leaves_a_running_fallback_to_the_previous_owner(end):
    """Z1, L: it ends there, once, and no other owner starts it."""
    async with Two(acme=topic(max_attempts=1)) as world:
        message_id, gate, taken = await world.put(), asyncio.Event(), []

        async def fallback(message):
            taken.append(message.id)
            await gate.wait()
            if end == "raises":
                raise OSError("disk full")

        world.slow, world.error = {("a", message_id)}, ValueError("no good")
        world.gate.set()
        a = await world.bare("a", fallback=Handler.of(fallback))
        await a.owned.open(P, 1)
        await until(lambda: taken)
        record = await world.released(a, 1)
        assert [1] == record.lanes["lanes"].running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        gate.set()
        await until(lambda: world.record().lanes["lanes"].done == [1])
        b.owned.on_held_change(P, world.record())
        await world.all_gone()
        assert [message_id] == taken
        assert {} == world.times("b")
        assert (end == "raises") == len(world.dead())


async def test_fallback_stays_recorded_when_the_timed_out_thread_returns(world):
    """X11: the thread doesn't own the message any more."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK, ack_wait=0.1)
    await world.put_keys([None])
    attempts = []
    for _ in range(5):
        returns, fallback_begun = threading.Event(), asyncio.Event()

        def hangs(_message, returns=returns):
            returns.wait(10)

        async def fallback_act(message, begun=fallback_begun):
            message.in_progress(60)
            attempts.append(message.attempt)
            begun.set()
            await asyncio.Event().wait()

        world.fallback_act = fallback_act
        node = await world.node_with_fallback(hangs)
        await until(lambda begun=fallback_begun: begun.is_set() or world.dead())
        if world.dead():
            break
        named = [node.gate.list_recorded(lane) for lane in node.partitions[P].lanes]
        returns.set()
        await until(lambda node=node: not node.workers.running)
        assert named == [node.gate.list_recorded(lane) for lane in node.partitions[P].lanes]
        await world.crash(node)
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {attempts[-1]}"


async def test_retry_stays_recorded_when_the_timed_out_thread_returns():
    """X11, K6: a retry of an ordered topic has the same place as the attempt that timed out."""
    async with KeyedWorld(acme=ordered(max_attempts=9, ack_wait=0.1)) as world:
        await world.put_keys(["k"])
        begun, returns = [], [threading.Event() for _ in range(9)]

        async def forever(_message):
            await asyncio.Event().wait()

        def hangs(message):
            begun.append(message.attempt)
            if len(begun) > 1:
                message.in_progress(60)
            returns[len(begun) - 1].wait(10)

        node = await world.node(forever)
        await until(lambda: node.workers.running)
        await world.crash(node)
        node = await world.node(hangs)
        await until(lambda: len(begun) == 2)
        named = node.gate.list_recorded(node.partitions[P].lane)
        returns[0].set()
        await until(lambda: len(node.workers.running) == 1)
        assert (1, named) == (len(named), node.gate.list_recorded(node.partitions[P].lane))
        for each in returns:
            each.set()


async def test_gate_stays_busy_while_a_fallback_waits_for_the_lease():
    """X11: no suspect may start as if no message were in flight."""

    def put(*_):
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    gate = InFlightGate(SimpleNamespace(put=put), "online", WorkSignal(), SimpleNamespace(on_records_idle=lambda: None))
    lane = FedLane(LaneId("lanes", P), 1, MemoryBudget(), Host())
    message = SimpleNamespace(recorded=True, is_suspect=False, project="acme", place=(lane, 1))
    fallback = Fallback(Handler.of(raising(ValueError)), gate)
    fallback.expect(message)
    assert not await fallback.handle(message, lambda: False)
    assert gate.is_busy
    fallback.forgo(message)
    assert not gate.is_busy
    gate.close()
