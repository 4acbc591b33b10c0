"""The ends of an owner that count an attempt of the messages in flight: stops, handoffs, leases, outages (X11)."""

import asyncio

import pytest

from evenlane.engine.base.names import settled_stream
from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.core.ports import Lost, Refused
from tests.support.node.gate_records import Records
from tests.support.node.keyed import Held, PoisonWorld, failing
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, SECOND, is_durable, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with PoisonWorld() as made:
        yield made


async def test_clean_stop_costs_no_attempt(world):
    """X11, fault 3: running handlers end, no other message starts, and the next owner handles the rest."""
    put = await world.put_keys([None] * 30)
    held = world.waits = Held(*put[:8])
    node = await world.node(world.handle, concurrency=8)
    await until(lambda: len(node.workers.running) == 8)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    held.go()
    assert await stopping
    assert 8 == len(world.handled)
    await world.node(world.handle)
    await world.all_gone()
    assert {1} == {message.attempt for message in world.handled}
    assert not any(message.is_suspect for message in world.handled)
    assert 30 == len(world.ids)


async def test_stop_with_a_running_handler_costs_no_attempt(world):
    """X11, fault 4: its message is handled again."""
    put = await world.put_keys([None] * 3)
    world.waits = Held(put[0])
    node = await world.node(world.handle)
    await until(lambda: put[1] in world.ids and put[2] in world.ids)
    world.nodes.remove(node)
    assert not await node.stop(0.1)
    await node.store.close()
    world.waits.go()
    again = await world.put_key(None)
    await world.node(world.handle)
    await world.all_gone()
    assert {put[0]: 1, again: 1} == {each.id: each.attempt for each in world.handled if each.id in {put[0], again}}


@pytest.mark.parametrize("most", [1, 3])
async def test_lost_lease_counts_as_a_death(world, most):
    """X11, O: a suspended process can't be distinguished from a dead one. The first death counts an attempt only of
    messages that a record names.
    """
    world.topics["acme"] = topic(max_attempts=most)
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    old = await world.node(world.handle)
    await until(lambda: old.workers.running)
    old.trust(0)
    world.waits = Held()
    await world.node(world.handle)
    await until(lambda: message_id in world.ids)
    outcome = (2, True) if most == 1 else (1, False)
    assert [outcome] == [(message.attempt, message.is_suspect) for message in world.handled]


async def test_handoff_costs_no_attempt():
    """X11, Z1: whether a message still runs at the previous owner, has ended there, or hasn't started."""
    async with Two() as world:
        put = [await world.put() for _ in range(12)]
        world.slow = {("a", message_id) for message_id in put[:4]}
        a = await world.bare("a", concurrency=4)
        await a.owned.open(P, 1)
        await until(lambda: len(a.workers.running) == 4)
        record = await world.released(a, 1)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: set(put[4:]) <= set(world.ids))
        world.gate.set()
        await until(lambda: not world.record().is_running)
        b.owned.on_held_change(P, world.record())
        await world.all_gone()
        assert {1} == {message.attempt for message in world.handled}
        assert not any(message.is_suspect for message in world.handled)


@pytest.mark.parametrize("kind", ["lanes", "later"])
@pytest.mark.parametrize("most", [1, 3])
async def test_death_of_a_previous_owner_makes_its_messages_suspects(kind, most):
    """X11, Z1: the next owner waits for them at that time. If a record names one, an attempt is counted, once."""
    async with Two(acme=topic(max_attempts=most)) as world:
        due = world.store.now() + SECOND // 50 if kind == "later" else None
        message_id = await world.put(due=due)
        world.slow.add(("a", message_id))
        a = await world.bare("a")
        await a.owned.open(P, 1)
        await until(lambda: a.workers.running)
        record = await world.released(a, 1)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await world.crash(a)
        b.owned.on_held_gone(P, record)
        await until(lambda: message_id in world.ids)
        outcome = (1 + (most == 1), True)
        assert [outcome] == [(message.attempt, message.is_suspect) for message in world.handled]


@pytest.mark.parametrize("outage", ["refused", "lost"])
async def test_recorded_messages_wait_while_records_cannot_be_written(world, outage):
    """X11: fresh messages run meanwhile. Once records can be written again, each recorded message is handled, once."""
    put = await world.put_keys([None] * 20)
    await world.crash_with(*put[:4], deaths=1, concurrency=4)
    world.begun.clear()
    world.server.refuse("busy.", Refused("no space") if outage == "refused" else Lost("no answer"))
    node = await world.node(world.handle)
    fresh = await world.put_keys([None] * 20)
    await until(lambda: node.gate.is_failing and set(fresh) == set(world.ids))
    assert set(fresh) == {each.id for every in world.begun.values() for each in every}
    assert 0 == node.gate.occupied
    world.waits.go()
    world.server.accept("busy.")
    await world.all_gone()
    assert sorted([*put, *fresh]) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}


async def test_death_before_the_record_is_stored_costs_no_attempt(world):
    """X11: the message hasn't started."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.node(world.handle)
    world.server.refuse("busy.")
    (message_id,) = await world.put_keys([None])
    await until(lambda: node.gate.is_failing)
    await world.crash(node)
    world.server.accept("busy.")
    await world.node(world.handle)
    await world.all_gone()
    assert [(message_id, 1, False)] == [(each.id, each.attempt, each.is_suspect) for each in world.handled]


async def test_fresh_messages_pay_nothing_for_the_death_of_a_suspect(world):
    """X11: the suspect is the cause."""
    (poison,) = world.deadly = set(await world.put_keys([None]))
    assert await world.run_node()
    assert await world.run_node()
    node = await world.node(world.handle)
    await until(lambda: world.suspects == {poison})
    others = ["a", "b", "c", "d"]
    world.waits = Held(*others)
    for message_id in others:
        await world.put_key(None, id=message_id)
    await until(lambda: len(node.workers.running) == 5)
    await world.crash(node)
    world.waits.go()
    await world.run_nodes(3)
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {(message_id, 1, False) for message_id in others} == {
        (each.id, each.attempt, each.is_suspect) for each in world.handled
    }


async def test_recorded_messages_pay_for_the_death_of_a_suspect(world):
    """X11: the suspect is the cause; but if they paid nothing, a poison message would have two free deaths."""
    (poison,) = world.deadly = set(await world.put_keys([None]))
    assert await world.run_node()
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: world.killer == poison and node.workers.running)
    others = await world.put_keys([None] * 4)
    await world.crash(node)
    world.waits = Held(*others)
    node = await world.node(world.handle)
    await until(lambda: len(node.workers.running) == 5)
    assert {poison} == world.suspects
    await world.crash(node)
    world.waits.go()
    await world.run_nodes(2)
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {(message_id, 2, True) for message_id in others} == {
        (each.id, each.attempt, each.is_suspect) for each in world.handled
    }


async def test_suspect_whose_copy_is_refused_is_cleared(world):
    """X11: the process has survived it. It stays in its stream, but isn't a suspect after the next crash."""
    (message_id,) = await world.put_keys([None])
    await world.crash_with(message_id)
    world.server.refuse("later.")
    world.act = failing(message_id)
    node = await world.idle_node(world.handle)
    records = Records(node)
    await node.take_over(range(CLUSTER_CONFIG.partitions), world.next_epoch())
    await until(lambda: node.failures.pending and not records.safe, what="a record without the suspect")
    await until(lambda: is_durable(node))
    await world.crash(node)
    world.server.accept("later.")
    world.act = world.nothing
    await world.node(world.handle)
    await world.all_gone()
    assert [(message_id, 2, False)] == [(each.id, each.attempt, each.is_suspect) for each in world.handled]


@pytest.mark.parametrize("end", ["a stop", "a handoff"])
async def test_paused_message_pays_nothing_for_a_clean_end(world, end):
    """X11: the last record still names it; the clean end supersedes that."""

    async def act(message):
        raise Pause(60)

    (message_id,) = await world.put_keys([None])
    world.act = act
    node = await world.node(world.handle)
    await until(lambda: world.begun and not node.in_flight)
    world.act = world.nothing
    if end == "a stop":
        await world.stop(node)
        await world.node(world.handle)
    else:
        node.owned.stop_partition(P)
        assert {} == await node.owned.hand_off(P, 1, 0)
        await world.node(world.handle)
    await until(lambda: world.ids)
    assert [(message_id, 1, False)] == [(each.id, each.attempt, each.is_suspect) for each in world.handled]


async def test_interrupted_takeover_costs_no_attempt():
    """X11, Z1: its fence may be in the log though no answer came. No message has started, and the record of the owner
    says so.
    """
    async with Two() as world:
        put = [await world.put() for _ in range(3)]
        world.server.delay_acks()
        a = await world.bare("a")
        opening = asyncio.ensure_future(a.owned.open(P, 1))
        await until(lambda: world.server.messages(settled_stream("online")))
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        record = await world.released(a, 1)
        assert not record.is_running
        assert record.lanes
        world.server.delay_acks(0)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        assert [0, 0] == [lane.horizon for lane in b.partitions[P].lanes]
        await until(lambda: set(put) <= set(world.ids))
        assert {(1, False)} == {(message.attempt, message.recorded) for message in world.handled}
