"""A fallback whose process dies or stops, and its place in the in-flight record (X11, issue 5, item 2)."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.message import Reject
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.signals.work_signal import WorkSignal
from tests.support.lane_host import Host
from tests.support.node.fallback import Falling, raising
from tests.support.node.gate_records import Records, place
from tests.support.node.keyed import QUICK, Held, Keyed, ordered
from tests.support.node.two import P, Two
from tests.support.node.world import topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Falling() as made:
        yield made


@pytest.mark.parametrize("reject", [False, True], ids=["failed", "rejected"])
async def test_one_that_kills_its_process_ends(world, reject):
    """F8, X11: its deaths count as attempts, but for the first one; in the end the message goes to the dead letters
    without it.
    """
    most = 4
    world.topics["acme"] = topic(max_attempts=most, backoff=QUICK)
    falls = []

    async def last(message):
        falls.append(message.attempt)
        await asyncio.Event().wait()

    world.last = last
    if reject:
        world.act = raising(Reject("not wanted"))
    await world.put_keys([None])
    for deaths in range(1, most + 3):
        node = await world.falling()
        await until(lambda deaths=deaths: len(falls) == deaths or world.waiting() == 0)
        if world.waiting() == 0:
            break
        await world.crash(node)
    assert 0 == world.waiting()
    assert ([1, 1, 2, 3, 4] if reject else [4, 4, 5]) == falls
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {falls[-1]}"


@pytest.mark.parametrize("reject", [False, True], ids=["failed", "rejected"])
async def test_one_that_kills_its_process_beside_others_ends_too(world, reject):
    """F8, X11: it stays the record's suspect until its fallback has ended: N + 1 deaths at the most."""
    world.topics["acme"], world.topics["shop"] = topic(max_attempts=2, backoff=QUICK), topic()
    falls, alongside = [], asyncio.Event()

    async def last(message):
        falls.append(message.attempt)
        await asyncio.Event().wait()

    async def act(message):
        if message.project == "acme":
            await alongside.wait()
            raise Reject("not wanted") if reject else ValueError("no good")
        if not message.recorded:  # those that were there at the last death end at once
            alongside.set()
            await asyncio.Event().wait()

    world.last, world.act = last, act
    await world.put_keys([None])
    for deaths in range(1, 5):
        alongside.clear()
        node = await world.falling()
        await world.put_key(None, project="shop")
        await until(lambda deaths=deaths: len(falls) == deaths or world.dead())
        if world.dead():
            break
        await world.crash(node)
    assert ([1, 1, 2] if reject else [2, 2, 3]) == falls
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {falls[-1]}"


async def test_no_other_suspect_starts_while_that_of_a_suspect_runs(world):
    """X11: a death would accuse the other one, and not the fallback."""
    world.topics["acme"] = topic(max_attempts=9, backoff=QUICK)
    own, other = await world.put_keys([None] * 2)
    world.act = Held(own, other)
    for _ in range(2):
        node = await world.falling()
        await until(lambda node=node: len(node.workers.running) == 2)
        await world.crash(node)

    async def act(message):
        if message.id == own:
            raise Reject("not wanted")

    world.act, world.last = act, (held := Held(own))
    node = await world.falling()
    await until(lambda: world.taken)
    fresh = await world.put_keys([None] * 20)
    await until(lambda: set(fresh) <= set(world.ids))
    assert other not in world.ids
    held.go()
    await world.all_over()
    assert {other, *fresh} == set(world.ids)
    assert [(own, 2)] == [taken[:2] for taken in world.taken]


async def test_it_is_named_by_a_safe_record(world):
    """X11: or its death would count for nothing."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.falling()
    records = Records(node)

    async def last(message):
        assert place(message) in records.safe

    world.last = last
    await world.put_keys([None] * 40)
    await world.all_over()
    assert (40, 0) == (node.counters.fallen_back, len(world.dead()))
    await until(lambda: not records.safe)


async def test_it_does_not_start_without_one(world):
    """X11: nor is the message put among the dead meanwhile."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.falling()
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
    await world.all_over()
    assert 1 == len(world.taken)


async def test_a_stop_while_it_runs_loses_nothing(world):
    """L: one that ends in time is settled; one that doesn't comes again, or is dead if that was its last attempt."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    quick, slow = await world.put_keys([None] * 2)
    world.last = held = Held(quick, slow)
    node = await world.falling()
    await until(lambda: len(world.taken) == 2)
    stopping = asyncio.ensure_future(node.stop(0.4))
    held.go(quick)
    assert not await stopping
    world.nodes.remove(node)
    await node.store.close()
    assert [] == world.dead()
    world.act = world.nothing
    await world.node(world.handle)
    await world.all_over()
    assert [slow] == [*world.ids, *(h.value(each.headers, h.ID).split(":")[1] for each in world.dead())]


async def test_a_stop_waits_for_it(world):
    """Fault 3."""
    (own,) = await world.put_keys([None])
    world.last = held = Held(own)
    node = await world.falling()
    await until(lambda: world.taken)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    held.go()
    assert await stopping
    await world.node(world.handle)
    assert 1 == node.counters.fallen_back
    await world.all_over()
    assert [] == world.ids


@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_a_hand_over_while_it_runs(end):
    """Z1, L: the old owner ends it, once; nobody else begins it meanwhile."""
    async with Two(acme=topic(max_attempts=1)) as world:
        own, gate, taken = await world.put(), asyncio.Event(), []

        async def last(message):
            taken.append(message.id)
            await gate.wait()
            if end == "raises":
                raise OSError("disk full")

        world.slow, world.error = {("a", own)}, ValueError("no good")
        world.gate.set()
        a = await world.bare("a", fallback=Handler.of(last))
        await a.owned.open(P, 1)
        await until(lambda: taken)
        record = await world.released(a, 1)
        assert [1] == record.lanes["lanes"].running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        gate.set()
        await until(lambda: world.record().lanes["lanes"].done == [1])
        b.owned.held_changed(P, world.record())
        await until(lambda: world.waiting() == 0)
        assert [own] == taken
        assert {} == world.times("b")
        assert (end == "raises") == len(world.dead())


async def test_it_stays_named_when_the_thread_that_was_given_up_returns(world):
    """X11: the thread has no part in it any more."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK, ack_wait=0.1)
    await world.put_keys([None])
    falls = []
    for _ in range(5):
        returns, fell = threading.Event(), asyncio.Event()

        def hangs(_message, returns=returns):
            returns.wait(10)

        async def last(message, fell=fell):
            message.in_progress(60)
            falls.append(message.attempt)
            fell.set()
            await asyncio.Event().wait()

        world.last = last
        node = await world.falling(hangs)
        await until(lambda fell=fell: fell.is_set() or world.dead())
        if world.dead():
            break
        named = [node.gate.of(lane) for lane in node.partitions[P].both]
        returns.set()
        await until(lambda node=node: not node.workers.running)
        assert named == [node.gate.of(lane) for lane in node.partitions[P].both]
        await world.crash(node)
    ((reason, _),) = world.dead_letters()
    assert reason == f"its process died in attempt {falls[-1]}"


async def test_an_attempt_stays_named_when_the_former_ones_thread_returns():
    """X11, order: a retry of an ordered topic has the place that the given-up attempt had."""
    async with Keyed(acme=ordered(max_attempts=9, ack_wait=0.1)) as world:
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
        named = node.gate.of(node.partitions[P].lane)
        returns[0].set()
        await until(lambda: len(node.workers.running) == 1)
        assert (1, named) == (len(named), node.gate.of(node.partitions[P].lane))
        for each in returns:
            each.set()


async def test_it_keeps_its_place_while_the_lease_is_in_doubt():
    """X11: no suspect may take this for a moment in which nothing is in flight."""

    def put(*_):
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    gate = InFlightGate(SimpleNamespace(put=put), "online", WorkSignal(), SimpleNamespace(records_idle=lambda: None))
    lane = FedLane(LaneId("lanes", P), 1, MemoryBudget(), Host())
    message = SimpleNamespace(recorded=True, suspect=False, project="acme", place=(lane, 1))
    fallback = Fallback(Handler.of(raising(ValueError)), gate)
    fallback.expect(message)
    assert not await fallback.take(message, lambda: False)
    assert gate.busy
    fallback.forgo(message)
    assert not gate.busy
    gate.close()
