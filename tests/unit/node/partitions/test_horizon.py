"""Whether an owner's end was clean, and the crash horizon up to which the next owner records its messages (X11).

Other files have related cases:
- test_horizon_cases.py: single messages
- eligibility/test_poison.py: a poison message and its neighbours
- eligibility/test_poison_counts.py: lost leases, handoffs and stops
- eligibility/test_poison_handoff.py: the owner after the next
- handlers/test_in_flight_gate.py: a store that refuses records
- eligibility/test_suspects.py, tests/unit/core/lane/test_crash_horizon.py: the pure rules
- tests/unit/runtime/test_sigterm.py: SIGTERM
"""

import asyncio

import pytest

from evenlane.engine.base.names import settled_stream
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import QUICK, Held
from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import LANES, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


async def test_clean_stop_leaves_no_horizon(world):
    """X11, E18: the next owner reads no in-flight records, and its messages are fresh."""
    await world.put_paused()
    done = await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    await until(lambda: set(done) == set(world.ids))
    assert await world.stop(node)
    assert (0, True) == await world.last_word()
    assert (0, True) == await world.last_word("later")
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    node = await world.node_with(message_id)
    assert (0, 0) == world.horizons(node)
    assert {message_id: False} == world.recorded(node)
    assert 0 == world.record_reads


async def test_death_sets_the_horizon_to_the_end_of_the_stream(world):
    """X11: later messages are fresh."""
    put = await world.put_keys([None] * 3)
    await world.crash_with(*put, deaths=1)
    node = await world.node_with(*put)
    assert (3, 0) == world.horizons(node)
    assert (3, False) == await world.last_word()
    assert dict.fromkeys(put, True) == world.recorded(node)
    (fresh,) = await world.put_keys([None], id="fresh")
    await until(lambda: fresh in world.ids)
    assert not world.handled[0].recorded
    assert world.record_reads


@pytest.mark.parametrize("process_ends", [True, False])
async def test_stop_with_a_running_handler_is_clean_if_the_process_ends(world, process_ends):
    """X11, fault 4: the message is handled again in its first attempt, and isn't a suspect. If the process lives on
    without its lease, its handlers may still kill it, so the end isn't clean.
    """
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    node = await world.node_with(message_id)
    world.nodes.remove(node)
    assert not await node.stop(0.1, process_ends=process_ends)
    await node.store.close()
    assert (0, process_ends) == await world.last_word()
    node = await world.node_with(message_id)
    assert ((0 if process_ends else 1), 0) == world.horizons(node)
    assert {message_id: (1, False)} == world.looks(node)
    assert {message_id: not process_ends} == world.recorded(node)


async def test_stop_during_a_handoff_is_clean(world):
    """X11, fault 4: though a handler of the partition still runs."""
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    node = await world.node_with(message_id)
    node.owned.stop_partition(P)
    world.nodes.remove(node)
    assert not await node.stop(0.1)
    await node.store.close()
    assert (0, True) == await world.last_word()


async def test_clean_handoff_counts_after_the_lease_is_lost(world):
    """X11."""
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


async def test_handoff_that_the_log_refuses_is_in_the_key(world):
    """X11: the existence of the key says that the end was clean."""
    await world.put_paused()
    node = await world.node(world.handle)
    world.server.refuse("settled.")
    node.owned.stop_partition(P)
    lanes = await node.owned.hand_off(P, 1)
    assert {"lanes", "later"} == lanes.keys()
    assert not any(lane.running for lane in lanes.values())


async def test_death_after_a_handoff_records_only_the_held_message():
    """X11, Z1."""
    async with Two() as world:
        message_id = await world.put()
        world.slow.add(("a", message_id))
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
        b.owned.on_held_gone(P, record)
        waiting.append(await world.put())
        await until(lambda: len(world.handled) == 5)
        assert {**dict.fromkeys(waiting, False), message_id: True} == {each.id: each.recorded for each in world.handled}


@pytest.mark.parametrize("end", ["clean", "death"])
async def test_owner_that_dies_before_its_fence_changes_no_horizon(world, end):
    """X11: the end of the previous owner in the log counts."""
    await world.put_paused()
    node = await world.node(world.handle)
    await (world.stop(node) if end == "clean" else world.crash(node))
    world.next_epoch()
    await world.put_paused()
    node = await world.node(world.handle)
    assert ((0 if end == "clean" else 2), 0) == world.horizons(node)


async def test_horizon_ends_when_the_watermark_passes_it(world):
    """X11: the owner died after its fence without starting a message. The next pass over the lane is recorded."""
    world.topics["acme"] = topic(state="paused")
    put = await world.put_keys([None] * 3)
    await world.crash(await world.node(world.handle))
    node = await world.node(world.handle)
    assert (3, 0) == world.horizons(node)
    await world.changed(node, backoff=QUICK)
    await world.all_gone()
    assert dict.fromkeys(put, (1, False, True)) == {m.id: (m.attempt, m.is_suspect, m.recorded) for m in world.handled}
    (fresh,) = await world.put_keys([None])
    await until(lambda: fresh in world.ids)
    assert not world.handled[-1].recorded
    await world.all_gone()
    assert 0 == (await world.last_word())[0]


async def test_repeated_takeover_keeps_the_horizon(world):
    """X11: the answer to the fence was lost, and the epoch is the same."""
    await world.put_paused()
    await world.crash(await world.node(world.handle))
    node, epoch = await world.idle_node(world.handle), world.next_epoch()
    world.server.delay_acks()
    opening = asyncio.ensure_future(node.owned.open(P, epoch))
    await until(lambda: len(world.records_of(epoch)) == 2)
    later = asyncio.ensure_future(world.put_paused())
    world.server.disconnect(node.store)
    world.server.delay_acks(0)
    world.server.reconnect(node.store)
    await asyncio.gather(opening, later)
    assert (1, 0) == world.horizons(node)


async def test_clean_stop_keeps_an_earlier_horizon(world):
    """X11: the next death moves it."""
    put = await world.put_keys([None] * 2)
    await world.crash_with(*put, deaths=1)
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


async def test_death_sets_the_horizon_of_all_streams_of_its_process(world):
    """X11: the poison message may come from any of them."""
    for project in ("acme", "still"):
        world.topics[project] = topic(state="paused")
        for group in range(10):
            await world.put(project=project, group=group)
            await world.put(project=project, group=group, due=world.store.now())
    await world.crash(await world.node(world.handle))
    node = await world.node(world.handle)
    lanes = [lane for partition in node.partitions.values() for lane in partition.lanes]
    states = {lane.id: await world.store.state(lane.id) for lane in lanes}
    assert {*LANES} == {lane.id for lane in lanes if lane.horizon}
    assert {each: state.last for each, state in states.items()} == {lane.id: lane.horizon for lane in lanes}


async def test_death_leaves_no_horizon_in_an_empty_stream(world):
    """X11: all of its messages were settled and removed."""
    await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    await world.all_gone()
    await world.crash(node)
    node = await world.node(world.handle)
    assert (0, 0) == world.horizons(node)
    assert 0 == (await world.last_word())[0]
    await world.put_keys([None])
    await until(lambda: len(world.handled) == 4)
    assert not world.handled[-1].recorded


async def test_first_owner_has_no_horizon(world):
    """X11, E11: though there is a backlog."""
    put = await world.put_keys([None] * 3)
    world.waits = Held(*put)
    node = await world.node_with(*put)
    assert (0, 0) == world.horizons(node)
    assert dict.fromkeys(put, False) == world.recorded(node)
    assert 0 == world.record_reads


@pytest.mark.parametrize("log", ["lost", "unreadable"])
async def test_lost_settle_log_makes_all_messages_recorded(world, log):
    """X11, E11: any message may have been in flight."""
    await world.put_keys([None] * 2)
    node = await world.node(world.handle)
    await world.all_gone()
    assert await world.stop(node)
    if log == "lost":
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


@pytest.mark.parametrize("when", ["before the takeover", "after it"])
@pytest.mark.parametrize("stream", ["rolled back", "replaced"])
async def test_horizon_after_a_rollback_or_replacement(world, stream, when):
    """X11, E12: messages that get old sequences after the takeover were in flight at no death. Before it, they may have
    been.
    """
    put = await world.put_keys([None] * 5)
    await world.crash_with(*put, deaths=1)
    world.topics["acme"] = topic(state="paused")

    def change_stream():
        if stream == "rolled back":
            world.server.roll_back("online", lane_of("lanes"), 2)
        else:
            world.server.replace("online", lane_of("lanes"))

    if when == "before the takeover":
        change_stream()
        new = await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    if when == "after it":
        change_stream()
        await until(lambda: node.partitions[P].lane.generation == 1)
        new = await world.put_keys([None] * 3)
    kept = put[:2] if stream == "rolled back" else []
    world.waits = Held(*kept, *new)
    await world.changed(node, backoff=QUICK)
    await world.runs(node, *kept, *new)
    recorded = when == "before the takeover"
    assert {**dict.fromkeys(kept, True), **dict.fromkeys(new, recorded)} == world.recorded(node)
