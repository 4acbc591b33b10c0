"""The messages that are recorded, and the attempts that a death costs them (X11). See test_horizon.py."""

import asyncio
import threading

import msgspec
import pytest

from evenlane.engine.base.names import busy_stream
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.wire import headers as h
from evenlane.ring.membership.records import HeldRecord
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import QUICK, Held, ordered
from tests.support.node.two import P, lane_of
from tests.support.node.world import change, is_lagging, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


async def test_suspect_pays_for_the_first_death_of_a_fresh_poison_message(world):
    """X11: the poison message doesn't."""
    world.topics["acme"] = topic(max_attempts=5, backoff=QUICK)
    (innocent,) = await world.put_keys([None])
    await world.crash_with(innocent)
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
async def test_copy_is_recorded_if_its_original_was(world, recorded):
    """X11: it is above the horizon; otherwise each copy of a poison message would have a free death."""
    (message_id,) = await world.put_keys([None])
    if recorded:
        await world.crash_with(message_id, deaths=1)
    world.waits = Held()

    async def act(message):
        if message.attempt == 1:
            raise ValueError("no")
        await world.waits(message)

    world.act, world.waits = act, Held(message_id)
    node = await world.node(world.handle)
    await until(lambda: world.looks(node) == {message_id: (2, False)})
    assert {message_id: recorded} == world.recorded(node)
    assert 0 == world.horizons(node)[1]


async def test_dead_letter_has_no_recorded_header(world):
    """X11: it may be put again."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    (message_id,) = await world.put_keys([None])
    await world.crash_with(message_id, deaths=1)

    async def act(message):
        raise ValueError("no")

    world.act = act
    await world.node(world.handle)
    await world.all_gone()
    (dead_letter,) = world.dead()
    assert h.value(dead_letter.headers, h.RECORDED) is None
    assert "2" == h.value(dead_letter.headers, h.ATTEMPT)


async def test_delayed_messages_below_the_horizon_are_recorded(world):
    """X11, K1: a dead owner may have started them. Messages that are put later are fresh."""
    put = [await world.put_key(None, due=world.store.now() + n) for n in range(2)]
    await world.crash_with(*put, deaths=1)
    node = await world.node_with(*put)
    assert (0, 2) == world.horizons(node)
    late = await world.put_key(None, due=world.store.now())
    await until(lambda: late in world.ids)
    assert not world.handled[0].recorded
    assert dict.fromkeys(put, True) == world.recorded(node)


async def test_copy_put_by_a_zombie_is_fresh(world):
    """X11, O: it is a message of its own, and the original runs again."""
    (message_id,) = await world.put_keys([None])
    free = asyncio.Event()
    nodes = []

    async def act(message):
        if message.node == "zombie":
            await free.wait()
            raise ValueError("no")
        await world.waits(message)

    world.act, world.waits = act, Held(message_id)
    nodes.append(await world.node(world.handle, node_id="zombie"))
    await until(lambda: nodes[0].workers.running)
    node = await world.node_with(message_id)
    free.set()
    await until(lambda: len(node.workers.running) == 2)
    found = {(message.attempt, message.is_suspect, message.recorded) for message in node.workers.running}
    assert {(1, False, True), (2, False, False)} == found


async def test_zombie_starts_no_message(world):
    """O, X11: and the next owner has a horizon."""
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    old = await world.node_with(message_id)
    old.trust(0)
    node = await world.node_with(message_id)
    assert (1, 0) == world.horizons(node)
    late = await world.put_keys([None] * 5)
    await until(lambda: set(late) == set(world.ids))
    assert 5 == node.counters.handled
    assert 0 == old.counters.handled


async def test_suspect_that_waits_holds_its_key(world):
    """K6, X11: no message of its key overtakes it, and other keys run."""
    world.topics["acme"] = ordered(max_attempts=9)
    first, second = await world.put_keys(["a", "b"])
    await world.crash_with(first, second)
    world.begun.clear()
    await world.put_keys(["a", "b"])
    others = await world.put_keys(["c", "d", "c"])
    await world.node(world.handle)
    await until(lambda: set(others) <= set(world.ids))
    assert 1 == sum(len(world.ids_of(key)) for key in "ab")
    world.waits.go()
    await world.all_gone()
    world.assert_in_order()


async def test_lost_in_flight_records_cost_no_attempt(world):
    """X11: the horizon remains."""
    put = await world.put_keys([None] * 2)
    await world.crash_with(*put)
    world.server.stream(busy_stream("online")).messages.clear()
    world.server.stream(busy_stream("online")).last_of.clear()
    node = await world.node_with(*put)
    assert dict.fromkeys(put, (1, False)) == world.looks(node)
    assert dict.fromkeys(put, True) == world.recorded(node)


async def test_copy_of_a_timed_out_message_is_recorded_after_a_death(world):
    """X11: its thread hangs and may have killed the process. The death costs no attempt."""
    world.topics["acme"] = topic(max_attempts=9, backoff=QUICK, ack_wait=0.1)
    hung, go = [], threading.Event()

    def hangs(message):
        hung.append(message.attempt)
        go.wait(20)

    (message_id,) = await world.put_keys([None])
    node = await world.node(hangs)
    await until(lambda: hung)
    change(world, node, topic(max_attempts=9, backoff=QUICK, ack_wait=0.1, state="paused"))
    await until(lambda: node.counters.retried and not node.partitions[P].lane.log.unsynced_count)
    await world.crash(node)
    go.set()
    world.topics["acme"], world.waits = topic(max_attempts=9, backoff=QUICK), Held(message_id)
    node = await world.node_with(message_id)
    assert {message_id: True} == world.recorded(node)
    assert {message_id: (2, False)} == world.looks(node)


@pytest.mark.parametrize(("first", "deaths", "then", "total"), [(3, 2, 5, 6), (5, 3, 2, 3), (2, 2, 1, 3)])
async def test_changed_max_attempts_bound_the_deaths(world, first, deaths, then, total):
    """X4, X11: by the largest of them and one."""
    world.topics["acme"] = topic(max_attempts=first, backoff=QUICK)
    (poison,) = world.deadly = set(await world.put_keys([None]))
    for _ in range(deaths):
        assert await world.run_node()
    world.topics["acme"] = topic(max_attempts=then, backoff=QUICK)
    await world.run_nodes(total)
    assert [poison] * total == world.killers
    assert {poison} == world.dead_letters().keys()


async def test_suspect_is_a_batch_of_its_own(world):
    """X11, E10: a death accuses only this suspect. Other messages share batches."""
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
    await world.all_gone()
    assert all(len(each) == 1 for each in batches if set(each) & set(put))
    assert any(len(each) > 1 for each in batches)
    assert 9 == sum(map(len, batches))


async def test_node_knows_messages_that_run_or_wait_for_their_copy(world):
    """L: though no record names them. A drop of messages skips these."""
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
    assert frozenset() == node.gate.list_recorded(lane)
    assert {1, 2} == node.list_out(lane)


async def full(world):
    """A node that starts no messages, because its settle log refuses records, and too many results aren't durable."""
    world.topics["acme"] = topic(state="paused")
    await world.put_keys([None] * 4_700)
    node = await world.node(world.handle, settle_interval=3)
    world.server.refuse("settled.")
    await world.changed(node)
    await until(lambda: node.settler.full)
    return node


async def test_node_stops_starting_messages_at_a_number_of_unsettled_results(world):
    """D: otherwise a fast handler might repeat the work of a second after a crash."""
    node = await full(world)
    await until(lambda: not node.workers.running)
    assert 4_096 < len(world.handled) < 4_096 + 2 * 256
    assert not is_lagging(node)
    world.server.accept("settled.")
    await world.all_gone(20)
    assert 4_700 == len(world.ids)


async def test_full_node_goes_on_when_the_lane_is_handed_over(world):
    """D, L: its unsettled messages belong to the next owner."""
    node = await full(world)
    node.owned.stop_partition(P)
    await node.owned.hand_off(P, 1)
    assert not node.settler.full
    world.server.accept("settled.")


@pytest.mark.parametrize("end", ["clean", "death"])
async def test_owner_of_an_older_release_leaves_a_horizon(world, end):
    """Rolling upgrade: its log doesn't say whether its end was clean, so all messages are recorded for one pass. No
    attempt is counted.
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


async def test_handoff_key_with_loans_alone_is_not_a_clean_end(world):
    """X11: a supervisor leaves such a key when a node with lent quota dies (docs/adr/0024)."""
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    (message_id,) = await world.put_keys([None])
    world.waits = Held(message_id)
    for deaths in range(4):
        epoch = world.next_epoch()
        node = await world.idle_node(world.handle)
        held = [HeldRecord(id="n", epoch=epoch - 1, lent={"acme": 0.01})] if deaths else []
        await node.owned.open(P, epoch, held)
        await until(lambda node=node: node.workers.running or world.dead())
        if world.dead():
            break
        await world.crash(node)
    assert ({message_id: ("its process died in attempt 2", "2")}, 3) == (world.dead_letters(), deaths)
