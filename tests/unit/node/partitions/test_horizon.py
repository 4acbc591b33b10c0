"""Which end of an owner was clean, and up to where its next one has to record what it starts (X11).

Rows of the table "Cases" that are tested elsewhere: the instant killer alone, that of a single attempt, one that had
failed before, the ordered one and the neighbours at both deaths in test_poison.py; a lost lease, the hand-over with a
handler that runs on, and what a stop leaves running in test_poison_counts.py; the owner after that in
test_poison_held.py; a store that refuses records in test_gate.py; the pure rules in ../test_horizon.py and
test_suspects.py; SIGTERM while etcd is away, or after a hand-over with a handler that never ends, in
../test_sigterm.py. Single messages are in test_horizon_cases.py.
"""

import asyncio

import pytest

from evenlane.engine.base.names import settled_stream
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import QUICK, Held
from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import LANES, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


@pytest.fixture
def looks(monkeypatch):
    """How often in-flight records were read."""
    found, busy = [], MemoryStore.busy

    async def counted(store):
        found.append(store)
        return await busy(store)

    monkeypatch.setattr(MemoryStore, "busy", counted)
    return found


async def test_sigterm_and_all_ends_in_time(world, looks):
    """X11, E18: no horizon, nothing is read, and what comes is fresh."""
    await world.put_paused()
    done = await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    await until(lambda: set(done) == set(world.ids))
    assert await world.stop(node)
    assert (0, True) == await world.last_word()
    assert (0, True) == await world.last_word("later")
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    node = await world.node_with(own)
    assert (0, 0) == world.horizons(node)
    assert {own: False} == world.recorded(node)
    assert [] == looks


async def test_a_death(world, looks):
    """X11: up to the stream's end; what comes later is fresh."""
    put = await world.put_keys([None] * 3)
    await world.dies_with(*put, deaths=1)
    node = await world.node_with(*put)
    assert (3, 0) == world.horizons(node)
    assert (3, False) == await world.last_word()
    assert dict.fromkeys(put, True) == world.recorded(node)
    (fresh,) = await world.put_keys([None], id="fresh")
    await until(lambda: fresh in world.ids)
    assert not world.handled[0].recorded
    assert looks


@pytest.mark.parametrize("process_ends", [True, False])
async def test_sigterm_and_a_handler_never_ends(world, process_ends):
    """X11, fault 4: it is handled again at its first attempt, no suspect. It is a death only if the process lives on
    without its lease: then what runs may kill it still.
    """
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    node = await world.node_with(own)
    world.nodes.remove(node)
    assert not await node.stop(0.1, process_ends=process_ends)
    await node.store.close()
    assert (0, process_ends) == await world.last_word()
    node = await world.node_with(own)
    assert ((0 if process_ends else 1), 0) == world.horizons(node)
    assert {own: (1, False)} == world.looks(node)
    assert {own: not process_ends} == world.recorded(node)


async def test_sigterm_while_a_partition_is_handed_over(world):
    """X11, fault 4: what still ran of it was left as well."""
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    node = await world.node_with(own)
    node.owned.stop_partition(P)
    world.nodes.remove(node)
    assert not await node.stop(0.1)
    await node.store.close()
    assert (0, True) == await world.last_word()


async def test_a_process_that_joins_anew_after_a_clean_hand_over(world):
    """X11: what it had said before its lease was lost counts."""
    await world.put_paused()
    node = await world.node(world.handle)
    node.owned.stop_partition(P)
    assert {} == await node.owned.hand_off(P, 1)
    assert (0, True) == await world.last_word()
    world.nodes.remove(node)
    await node.stop(0.1, process_ends=False)
    await node.store.close()
    node = await world.node(world.handle)
    assert (0, 0) == world.horizons(node)


async def test_a_hand_over_that_cannot_be_told_to_the_log_is_told_in_the_key(world):
    """X11: that there is a key says that the end was clean."""
    await world.put_paused()
    node = await world.node(world.handle)
    world.server.refuse("settled.")
    node.owned.stop_partition(P)
    lanes = await node.owned.hand_off(P, 1)
    assert {"lanes", "later"} == lanes.keys()
    assert not any(lane.running for lane in lanes.values())


async def test_a_hand_over_with_a_handler_that_runs_on_slows_nothing_else():
    """X11, Z1: should its process die, that message alone is recorded."""
    async with Two() as world:
        own = await world.put()
        world.slow.add(("a", own))
        a = await world.bare("a")
        await a.owned.open(P, 1)
        await until(lambda: a.workers.running)
        waiting = [await world.put(id=f"w{n}") for n in range(3)]
        await until(lambda: len(world.handled) == 3)
        record = await world.released(a, 1)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        assert 0 == b.partitions[P].lane.horizon
        await world.crash(a)
        b.owned.held_gone(P, record)
        waiting.append(await world.put())
        await until(lambda: len(world.handled) == 5)
        assert {**dict.fromkeys(waiting, False), own: True} == {each.id: each.recorded for each in world.handled}


@pytest.mark.parametrize("end", ["clean", "death"])
async def test_an_owner_that_got_the_key_and_died_before_its_fence(world, end):
    """X11: the log speaks of the one before, and its word counts."""
    await world.put_paused()
    node = await world.node(world.handle)
    await (world.stop(node) if end == "clean" else world.crash(node))
    world.next_epoch()
    await world.put_paused()
    node = await world.node(world.handle)
    assert ((0 if end == "clean" else 2), 0) == world.horizons(node)


async def test_one_that_fenced_and_died_with_nothing_started(world):
    """X11: the horizon is there, and goes with the watermark: one pass is slow."""
    world.topics["acme"] = topic(state="paused")
    put = await world.put_keys([None] * 3)
    await world.crash(await world.node(world.handle))
    node = await world.node(world.handle)
    assert (3, 0) == world.horizons(node)
    await world.changed(node, backoff=QUICK)
    await world.all_over()
    assert dict.fromkeys(put, (1, False, True)) == {m.id: (m.attempt, m.suspect, m.recorded) for m in world.handled}
    (fresh,) = await world.put_keys([None])
    await until(lambda: fresh in world.ids)
    assert not world.handled[-1].recorded
    await world.all_over()
    assert 0 == (await world.last_word())[0]


async def test_the_answer_to_the_fence_is_lost(world):
    """X11: the take-over is repeated under the same epoch, and the horizon is the same."""
    await world.put_paused()
    await world.crash(await world.node(world.handle))
    node, epoch = await world.idle_node(world.handle), world.next_epoch()
    world.server.delay_acks()
    opening = asyncio.ensure_future(node.owned.open(P, epoch))
    await until(lambda: len(world.fences(epoch)) == 2)
    later = asyncio.ensure_future(world.put_paused())
    world.server.disconnect(node.store)
    world.server.delay_acks(0)
    world.server.reconnect(node.store)
    await asyncio.gather(opening, later)
    assert (1, 0) == world.horizons(node)


async def test_a_death_then_a_clean_stop_then_a_death(world):
    """X11: an orderly hand-over carries the horizon on; the next death moves it."""
    put = await world.put_keys([None] * 2)
    await world.dies_with(*put, deaths=1)
    node = await world.node_with(*put)
    world.nodes.remove(node)
    await node.stop(0.1)
    await node.store.close()
    assert (2, True) == await world.last_word()
    fresh = await world.put_keys([None] * 2)
    world.waits = Held(*put, *fresh)
    node = await world.node_with(*put, *fresh)
    assert (2, 0) == world.horizons(node)
    assert {**dict.fromkeys(put, True), **dict.fromkeys(fresh, False)} == world.recorded(node)
    await world.crash(node)
    node = await world.node_with()
    assert (4, 0) == world.horizons(node)


async def test_each_death_makes_all_streams_of_its_process_unclean(world):
    """X11: the poison message may come back by any of them."""
    for project in ("acme", "still"):
        world.topics[project] = topic(state="paused")
        for group in range(10):
            await world.put(project=project, group=group)
            await world.put(project=project, group=group, due=world.store.now())
    await world.crash(await world.node(world.handle))
    node = await world.node(world.handle)
    lanes = [lane for partition in node.partitions.values() for lane in partition.both]
    states = {lane.id: await world.store.state(lane.id) for lane in lanes}
    assert {*LANES} == {lane.id for lane in lanes if lane.horizon}
    assert {each: state.last for each, state in states.items()} == {lane.id: lane.horizon for lane in lanes}


async def test_an_idle_stream(world):
    """X11: all of it was settled and removed: a death leaves no horizon."""
    await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    await world.all_over()
    await world.crash(node)
    node = await world.node(world.handle)
    assert (0, 0) == world.horizons(node)
    assert 0 == (await world.last_word())[0]
    await world.put_keys([None])
    await until(lambda: len(world.handled) == 4)
    assert not world.handled[-1].recorded


async def test_a_backlog_that_nobody_has_owned_yet(world, looks):
    """X11, E11: the very first start is no death."""
    put = await world.put_keys([None] * 3)
    world.waits = Held(*put)
    node = await world.node_with(*put)
    assert (0, 0) == world.horizons(node)
    assert dict.fromkeys(put, False) == world.recorded(node)
    assert [] == looks


@pytest.mark.parametrize("what", ["lost", "not to be read"])
async def test_a_settle_log_that_says_nothing(world, what):
    """X11, E11: whatever is there may have been in flight."""
    await world.put_keys([None] * 2)
    node = await world.node(world.handle)
    await world.all_over()
    assert await world.stop(node)
    if what == "lost":
        world.server.stream(settled_stream("online")).messages.clear()
        world.server.stream(settled_stream("online")).last_of.clear()
    else:
        _, position = await world.store.read_log(lane_of("lanes"))
        await world.store.append_log(lane_of("lanes"), b"\xc1", position, checkpoint=False)
    put = await world.put_keys([None] * 2)
    world.waits = Held(*put)
    node = await world.node_with(*put)
    assert 4 == world.horizons(node)[0]
    assert dict.fromkeys(put, True) == world.recorded(node)


@pytest.mark.parametrize("when", ["before the take-over", "after it"])
@pytest.mark.parametrize("what", ["rolled back", "made anew"])
async def test_a_stream_that_is_another_one_by_now(world, what, when):
    """X11, E12: sequences that are given anew after a take-over were in flight at no death; before it, who knows."""
    put = await world.put_keys([None] * 5)
    await world.dies_with(*put, deaths=1)
    world.topics["acme"] = topic(state="paused")

    def happens():
        if what == "rolled back":
            world.server.roll_back("online", lane_of("lanes"), 2)
        else:
            world.server.replace("online", lane_of("lanes"))

    if when == "before the take-over":
        happens()
        new = await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    if when == "after it":
        happens()
        await until(lambda: node.partitions[P].lane.generation == 1)
        new = await world.put_keys([None] * 3)
    kept = put[:2] if what == "rolled back" else []
    world.waits = Held(*kept, *new)
    await world.changed(node, backoff=QUICK)
    await world.runs(node, *kept, *new)
    known = when == "before the take-over"
    assert {**dict.fromkeys(kept, True), **dict.fromkeys(new, known)} == world.recorded(node)
