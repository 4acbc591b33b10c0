"""What of a lane is recorded, and what that costs it: message by message (X11). See test_horizon.py."""

import asyncio
import threading

import msgspec
import pytest

from evenlane.engine.base.names import busy_stream
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.wire import headers as h
from evenlane.ring.membership.records import HeldRecord
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import QUICK, Begun, Held, ordered
from tests.support.node.two import P, lane_of
from tests.support.node.world import change, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


async def test_a_fresh_killer_beside_an_innocent_suspect(world):
    """X11: the suspect pays an attempt, the killer's first death is free."""
    world.topics["acme"] = topic(max_attempts=5, backoff=QUICK)
    (innocent,) = await world.put_keys([None])
    await world.dies_with(innocent)
    node = await world.node_with(innocent)
    world.deadly = {killer := "killer"}
    await world.put_key(None, id=killer)
    await world.runs(node, innocent, killer)
    assert {innocent: (2, True), killer: (1, False)} == world.looks(node)
    await world.crash(node)
    world.waits = Held(innocent)
    node = await world.node_with(innocent, killer)
    assert {innocent: (3, True), killer: (1, False)} == world.looks(node)
    assert {innocent: True, killer: True} == world.recorded(node)


@pytest.mark.parametrize("recorded", [False, True], ids=["fresh", "recorded"])
async def test_a_copy_is_recorded_if_its_original_was(world, recorded):
    """X11: it lies above the horizon; without care each copy of a killer would have a free death."""
    (own,) = await world.put_keys([None])
    if recorded:
        await world.dies_with(own, deaths=1)
    world.waits = Held()

    async def act(message):
        if message.attempt == 1:
            raise ValueError("no")
        await world.waits(message)

    world.act, world.waits = act, Held(own)
    node = await world.node(world.handle)
    await until(lambda: world.looks(node) == {own: (2, False)})
    assert {own: recorded} == world.recorded(node)
    assert 0 == world.horizons(node)[1]


async def test_a_dead_letter_says_nothing_of_it(world):
    """X11: it is for whoever reads it, and may be put again."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    (own,) = await world.put_keys([None])
    await world.dies_with(own, deaths=1)

    async def act(message):
        raise ValueError("no")

    world.act = act
    await world.node(world.handle)
    await world.all_over()
    (dead_letter,) = world.dead()
    assert h.value(dead_letter.headers, h.RECORDED) is None
    assert "2" == h.value(dead_letter.headers, h.ATTEMPT)


async def test_what_is_below_the_later_streams_horizon(world):
    """X11, K1: delayed messages and copies that a dead owner may have begun are recorded, what is put later isn't."""
    put = [await world.put_key(None, due=world.store.now() + n) for n in range(2)]
    await world.dies_with(*put, deaths=1)
    node = await world.node_with(*put)
    assert (0, 2) == world.horizons(node)
    late = await world.put_key(None, due=world.store.now())
    await until(lambda: late in world.ids)
    assert not world.handled[0].recorded
    assert dict.fromkeys(put, True) == world.recorded(node)


async def test_a_copy_that_a_zombie_puts_after_the_fence(world):
    """X11, O: it is fresh, an incarnation of its own; the original is begun again, as it always was."""
    (own,) = await world.put_keys([None])
    free = asyncio.Event()
    nodes = []

    async def act(message):
        if message.node == "zombie":
            await free.wait()
            raise ValueError("no")
        await world.waits(message)

    world.act, world.waits = act, Held(own)
    nodes.append(await world.node(world.handle, node_id="zombie"))
    await until(lambda: nodes[0].workers.running)
    node = await world.node_with(own)
    free.set()
    await until(lambda: len(node.workers.running) == 2)
    found = {(message.attempt, message.suspect, message.recorded) for message in node.workers.running}
    assert {(1, False, True), (2, False, False)} == found


async def test_a_zombie_starts_nothing_more(world):
    """O, X11: and its next owner has a horizon."""
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    old = await world.node_with(own)
    old.trust(0)
    node = await world.node_with(own)
    assert (1, 0) == world.horizons(node)
    late = await world.put_keys([None] * 5)
    await until(lambda: set(late) == set(world.ids))
    assert 5 == node.counters.handled
    assert 0 == old.counters.handled


async def test_a_head_that_is_set_aside_keeps_its_key_out(world):
    """Item 4, X11: nothing of its key overtakes it, and other keys go on."""
    world.topics["acme"] = ordered(max_attempts=9)
    first, second = await world.put_keys(["a", "b"])
    await world.dies_with(first, second)
    world.begun.clear()
    await world.put_keys(["a", "b"])
    others = await world.put_keys(["c", "d", "c"])
    await world.node(world.handle)
    await until(lambda: set(others) <= set(world.ids))
    assert 1 == sum(len(world.ids_of(key)) for key in "ab")
    world.waits.go()
    await world.all_over()
    world.in_order()


async def test_in_flight_records_that_are_lost(world):
    """X11: what they would have counted is lost; the horizon isn't."""
    put = await world.put_keys([None] * 2)
    await world.dies_with(*put)
    world.server.stream(busy_stream("online")).messages.clear()
    world.server.stream(busy_stream("online")).last_of.clear()
    node = await world.node_with(*put)
    assert dict.fromkeys(put, (1, False)) == world.looks(node)
    assert dict.fromkeys(put, True) == world.recorded(node)


async def test_a_thread_that_hangs_and_kills_later(world):
    """X11: it was given up, so its copy is the message now: fresh, or recorded, by when it was put."""
    world.topics["acme"] = topic(max_attempts=9, backoff=QUICK, ack_wait=0.1)
    hung, go = [], threading.Event()

    def hangs(message):
        hung.append(message.attempt)
        go.wait(20)

    (own,) = await world.put_keys([None])
    node = await world.node(hangs)
    await until(lambda: hung)
    change(world, node, topic(max_attempts=9, backoff=QUICK, ack_wait=0.1, state="paused"))
    await until(lambda: node.counters.retried and not node.partitions[P].lane.log.unsynced_count)
    await world.crash(node)
    go.set()
    world.topics["acme"], world.waits = topic(max_attempts=9, backoff=QUICK), Held(own)
    node = await world.node_with(own)
    assert {own: True} == world.recorded(node)
    assert {own: (2, False)} == world.looks(node)


@pytest.mark.parametrize(("first", "deaths", "then", "total"), [(3, 2, 5, 6), (5, 3, 2, 3), (2, 2, 1, 3)])
async def test_max_attempts_that_change_meanwhile(world, first, deaths, then, total):
    """X4, X11: no more deaths than the largest of them and one."""
    world.topics["acme"] = topic(max_attempts=first, backoff=QUICK)
    (poison,) = world.deadly = set(await world.put_keys([None]))
    for _ in range(deaths):
        assert await world.next_node()
    world.topics["acme"] = topic(max_attempts=then, backoff=QUICK)
    await world.lives(total)
    assert [poison] * total == world.killed
    assert {poison} == world.dead_letters().keys()


async def test_a_suspect_is_a_batch_by_itself(world):
    """X11, E10: a death accuses it alone. What is fresh, or recorded only, shares one."""
    free, batches = asyncio.Event(), []

    @batch(max=8)
    async def several(messages):
        batches.append([message.id for message in messages])
        await free.wait()

    put = await world.put_keys([None] * 3)
    for _ in range(2):
        batches.clear()
        node = await world.node(several)
        await until(lambda: sum(map(len, batches)) == 3)
        await world.crash(node)
    free.set()
    batches.clear()
    await world.put_keys([None] * 6)
    await world.node(several)
    await world.all_over()
    assert all(len(each) == 1 for each in batches if set(each) & set(put))
    assert any(len(each) > 1 for each in batches)
    assert 9 == sum(map(len, batches))


async def test_what_is_out_is_known_though_no_record_names_it(world):
    """L: who drops messages passes over what runs, and what waits for its copy."""
    runs, fails = await world.put_keys([None] * 2)
    world.waits = Held(runs)

    async def act(message):
        if message.id == fails:
            raise ValueError("no")
        await world.waits(message)

    world.act = act
    world.server.refuse("later.")
    node = await world.node(world.handle)
    await until(lambda: node.failures.pending and node.workers.running)
    lane = node.partitions[P].lane
    assert frozenset() == node.gate.of(lane)
    assert {1, 2} == node.out(lane)


async def full(world):
    """A node that starts nothing, because too many ends aren't durable: its settle log refuses to be written."""
    world.topics["acme"] = topic(state="paused")
    await world.put_keys([None] * 6_000)
    node = await world.node(world.handle, settle_interval=3)
    world.server.refuse("settled.")
    await world.changed(node)
    await until(lambda: node.settler.full)
    return node


async def test_ends_that_do_not_become_durable_stop_new_starts_by_number(world):
    """D: without a record before each start, a quick handler could do a second's work twice over."""
    node = await full(world)
    await until(lambda: not node.workers.running)
    assert 4_096 < len(world.handled) < 4_096 + 2 * 256
    assert not node.settler.lagging
    world.server.accept("settled.")
    await world.all_over(20)
    assert 6_000 == len(world.ids)


async def test_a_node_that_is_full_goes_on_when_the_lane_that_made_it_so_goes(world):
    """D, L: what isn't durable by then is the next owner's, and no other lane may ever become durable again."""
    node = await full(world)
    node.owned.stop_partition(P)
    await node.owned.hand_off(P, 1)
    assert not node.settler.full
    world.server.accept("settled.")


async def test_a_message_that_is_begun_once_is_recorded_from_the_start(world):
    """X11: N + 1 deaths would leave it no attempt that tells it from its neighbours."""
    world.topics["acme"] = topic(max_attempts=1)
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    node = await world.node_with(own)
    assert {own: True} == world.recorded(node)
    await world.crash(node)
    node = await world.node_with(own)
    assert {own: (2, True)} == world.looks(node)
    assert [Begun(own, 1), Begun(own, 2)] == world.begun["acme", 0, "mid", None]


@pytest.mark.parametrize("end", ["clean", "death"])
async def test_after_an_owner_of_an_older_release(world, end):
    """Rolling upgrade: nobody says that its end was clean, so all there is has to be recorded for one pass; no attempt
    is counted for it.
    """
    put = await world.put_keys([None] * 2)
    world.topics["acme"] = topic(state="paused")
    node = await world.node(world.handle)
    await (world.stop(node) if end == "clean" else world.crash(node))
    lane = lane_of("lanes")
    records, position = await world.store.read_log(lane)
    old = msgspec.msgpack.encode([*msgspec.msgpack.decode(records[-1].body)[:10]])
    await world.store.append_log(lane, old, position, checkpoint=True)
    assert (0, None) == await world.last_word()
    world.topics["acme"], world.waits = topic(backoff=QUICK), Held(*put)
    node = await world.node_with(*put)
    assert 2 == world.horizons(node)[0]
    assert dict.fromkeys(put, (1, False)) == world.looks(node)
    assert (2, False) == await world.last_word()


async def test_a_key_that_tells_of_loans_alone_is_no_clean_end(world):
    """X11: a supervisor leaves one when a node that has lent something dies (docs/adr/0024)."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    (own,) = await world.put_keys([None])
    world.waits = Held(own)
    for deaths in range(4):
        epoch = world.next_epoch()
        node = await world.idle_node(world.handle)
        held = [HeldRecord(id="n", epoch=epoch - 1, lent={"acme": 0.01})] if deaths else []
        await node.owned.open(P, epoch, held)
        await until(lambda node=node: node.workers.running or world.dead())
        if world.dead():
            break
        await world.crash(node)
    assert ({own: ("its process died in attempt 2", "2")}, 3) == (world.dead_letters(), deaths)
