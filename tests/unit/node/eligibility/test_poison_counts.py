"""What counts as a death of what was in flight, and what doesn't: stops, hand-overs, leases, outages (X11)."""

import asyncio

import pytest

from evenlane.engine.base.names import settled_stream
from evenlane.engine.core.message.message import Pause
from evenlane.engine.core.ports import Lost, Refused
from tests.support.node.keyed import Deadly, Held, failing
from tests.support.node.two import P, Two
from tests.support.node.world import SECOND, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Deadly() as made:
        yield made


async def test_a_clean_stop_counts_nothing(world):
    """X11: what was in flight had ended, and what stood before its handler had not begun."""
    put = await world.put_keys([None] * 30)
    held = world.waits = Held(*put[:8])
    node = await world.node(world.handle, concurrency=8)
    await until(lambda: len(node.workers.running) == 8)
    stopping = asyncio.ensure_future(world.stop(node))
    await until(lambda: node.dispatcher.stopped)
    held.go()
    assert await stopping
    await world.node(world.handle)
    await world.all_over()
    assert {1} == {message.attempt for message in world.handled}
    assert not any(message.suspect for message in world.handled)
    assert 30 == len(world.ids)


async def test_what_a_stop_had_to_leave_running_has_killed_nothing(world):
    """X11, fault 4: it is handled again, and costs no attempt."""
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
    await world.all_over()
    assert {put[0]: 1, again: 1} == {each.id: each.attempt for each in world.handled if each.id in {put[0], again}}


@pytest.mark.parametrize("most", [1, 3])
async def test_a_lost_lease_is_a_death(world, most):
    """X11, O: nobody can tell a process that stands still from one that is dead. The first one counts nothing, but of
    what a record names.
    """
    world.topics["acme"] = topic(max_attempts=most)
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    old = await world.node(world.handle)
    await until(lambda: old.workers.running)
    old.trust(0)
    world.waits = Held()
    await world.node(world.handle)
    await until(lambda: own in world.ids)
    outcome = (2, True) if most == 1 else (1, False)
    assert [outcome] == [(message.attempt, message.suspect) for message in world.handled]


async def test_a_hand_over_counts_nothing():
    """X11, Z1: neither what still runs at the old owner, nor what ended, nor what stood in the gate."""
    async with Two() as world:
        put = [await world.put() for _ in range(12)]
        world.slow = {("a", own) for own in put[:4]}
        a = await world.bare("a", concurrency=4)
        await a.owned.open(P, 1)
        await until(lambda: len(a.workers.running) == 4)
        record = await world.released(a, 1)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: set(put[4:]) <= set(world.ids))
        world.gate.set()
        await until(lambda: not world.record().running)
        b.owned.held_changed(P, world.record())
        await until(lambda: world.waiting() == 0)
        assert {1} == {message.attempt for message in world.handled}
        assert not any(message.suspect for message in world.handled)


@pytest.mark.parametrize("kind", ["lanes", "later"])
@pytest.mark.parametrize("most", [1, 3])
async def test_who_dies_while_the_next_owner_waits(kind, most):
    """X11, Z1: what it still held is suspect; and has an attempt counted, once, if a record names it."""
    async with Two(acme=topic(max_attempts=most)) as world:
        due = world.store.now() + SECOND // 50 if kind == "later" else None
        own = await world.put(due=due)
        world.slow.add(("a", own))
        a = await world.bare("a")
        await a.owned.open(P, 1)
        await until(lambda: a.workers.running)
        record = await world.released(a, 1)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await world.crash(a)
        b.owned.held_gone(P, record)
        await until(lambda: own in world.ids)
        outcome = (1 + (most == 1), True)
        assert [outcome] == [(message.attempt, message.suspect) for message in world.handled]


@pytest.mark.parametrize("outage", ["refused", "lost"])
async def test_who_may_have_killed_does_not_start_while_the_record_cannot_be_written(world, outage):
    """X11: who could not be counted must not run, all others do; when it can be written again, all goes on, each
    once.
    """
    put = await world.put_keys([None] * 20)
    await world.dies_with(*put[:4], deaths=1, concurrency=4)
    world.begun.clear()
    world.server.refuse("busy.", Refused("no space") if outage == "refused" else Lost("no answer"))
    node = await world.node(world.handle)
    fresh = await world.put_keys([None] * 20)
    await until(lambda: node.gate.failing and set(fresh) == set(world.ids))
    assert set(fresh) == {each.id for every in world.begun.values() for each in every}
    assert 0 == node.gate.held
    world.waits.go()
    world.server.accept("busy.")
    await world.all_over()
    assert sorted([*put, *fresh]) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}


async def test_a_record_that_never_came_counts_nothing(world):
    """X11: a process that died before its record was safe hasn't begun anything."""
    world.topics["acme"] = topic(max_attempts=1)
    node = await world.node(world.handle)
    world.server.refuse("busy.")
    (own,) = await world.put_keys([None])
    await until(lambda: node.gate.failing)
    await world.crash(node)
    world.server.accept("busy.")
    await world.node(world.handle)
    await world.all_over()
    assert [(own, 1, False)] == [(each.id, each.attempt, each.suspect) for each in world.handled]


async def test_what_is_fresh_beside_a_suspect_pays_nothing(world):
    """X11: it was the cause; nobody suspects them."""
    (poison,) = world.deadly = set(await world.put_keys([None]))
    assert await world.next_node()
    assert await world.next_node()
    node = await world.node(world.handle)
    await until(lambda: world.suspects == {poison})
    others = ["a", "b", "c", "d"]
    world.waits = Held(*others)
    for own in others:
        await world.put_key(None, id=own)
    await until(lambda: len(node.workers.running) == 5)
    await world.crash(node)
    world.waits.go()
    await world.lives(3)
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {(own, 1, False) for own in others} == {(each.id, each.attempt, each.suspect) for each in world.handled}


async def test_what_is_recorded_beside_a_suspect_pays_as_well(world):
    """X11: it was the cause, but if they went free, one that kills could do so twice for nothing."""
    (poison,) = world.deadly = set(await world.put_keys([None]))
    assert await world.next_node()
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: world.kills == poison and node.workers.running)
    others = await world.put_keys([None] * 4)
    await world.crash(node)
    world.waits = Held(*others)
    node = await world.node(world.handle)
    await until(lambda: len(node.workers.running) == 5)
    assert {poison} == world.suspects
    await world.crash(node)
    world.waits.go()
    await world.lives(2)
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {(own, 2, True) for own in others} == {(each.id, each.attempt, each.suspect) for each in world.handled}


async def test_a_suspect_whose_copy_is_refused_is_cleared_all_the_same(world):
    """X11: the process has survived it; it stays where it is, but is nobody's suspect after the next crash."""
    (own,) = await world.put_keys([None])
    await world.dies_with(own)
    world.server.refuse("later.")
    world.act = failing(own)
    node = await world.node(world.handle)
    await until(lambda: node.failures.pending and not node.gate._dirty)
    await until(lambda: not any(lane.log.unsynced_count for p in node.partitions.values() for lane in p.both))
    await world.crash(node)
    world.server.accept("later.")
    world.act = world.nothing
    await world.node(world.handle)
    await world.all_over()
    assert [(own, 2, False)] == [(each.id, each.attempt, each.suspect) for each in world.handled]


@pytest.mark.parametrize("end", ["a stop", "a hand-over"])
async def test_what_has_just_paused_does_not_count(world, end):
    """X11: the last record before it still names it; what ends in peace writes another one."""

    async def act(message):
        raise Pause(60)

    (own,) = await world.put_keys([None])
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
    assert [(own, 1, False)] == [(each.id, each.attempt, each.suspect) for each in world.handled]


async def test_a_take_over_that_is_cut_short_counts_nothing():
    """X11, Z1: its fence may be in the log though no answer came. Nothing had started, and the next owner is told."""
    async with Two() as world:
        put = [await world.put() for _ in range(3)]
        world.server.delay_acks()
        a = await world.bare("a")
        opening = asyncio.ensure_future(a.owned.open(P, 1))
        await until(lambda: world.server.messages(settled_stream("online")))
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        record = await world.released(a, 1)
        assert not record.running
        assert record.lanes
        world.server.delay_acks(0)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        assert [0, 0] == [lane.horizon for lane in b.partitions[P].both]
        await until(lambda: set(put) <= set(world.ids))
        assert {(1, False)} == {(message.attempt, message.recorded) for message in world.handled}
