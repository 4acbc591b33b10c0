"""The gate before the handlers: a message that may have killed a process starts once a stored record names it (X11).

Messages of acme have one attempt, so each is recorded; those of shop are fresh.
"""

import asyncio
import random

import pytest

from evenlane.engine.base.names import busy_stream
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.ports import Refused
from tests.support.node.gate_records import Reads, Records, place_of
from tests.support.node.keyed import Begun, Held, KeyedWorld
from tests.support.node.world import CLUSTER_CONFIG, topic, turns
from tests.support.until import until

FAR = 1 << 62
ONCE = {"max_attempts": 1}
MOST_ASIDE = 1_024


@pytest.fixture
async def world():
    async with KeyedWorld(acme=topic(**ONCE), shop=topic()) as made:
        yield made


@pytest.mark.parametrize("seed", range(4))
async def test_each_running_message_is_named_by_a_stored_record(world, seed):
    """X11: under random load, and however long records take. One record is under way at a time."""
    draw = random.Random(seed)
    slots = draw.choice([1, 2, 8, 64])
    node = await world.node(world.handle, concurrency=slots)
    records = Records(node)
    records.delays.extend(draw.choice([0, 0, 0.001, 0.004, 0.02]) for _ in range(1_000))

    async def act(message):
        assert place_of(message) in records.safe
        assert len(node.workers.running) <= slots
        for _ in range(draw.choice([0, 0, 1, 10])):
            await asyncio.sleep(0)
        assert place_of(message) in records.safe, "a record names it as long as it runs"
        if draw.random() < 0.05:
            raise ValueError("no")

    world.act = act
    for _ in range(20):
        await world.put_keys([None] * draw.randint(1, 20), group=draw.choice([0, 1]))
        await asyncio.sleep(draw.choice([0, 0, 0.005]))
    await world.all_gone()
    assert not [each for each in world.dead() if b"AssertionError" in each.headers]
    assert {1} == {each.attempt for every in world.begun.values() for each in every}
    assert 1 == records.most_under_way
    assert records.most_in_flight <= slots
    assert 0 == node.gate.occupied


@pytest.mark.parametrize("kind", ["plain", "batch"])
async def test_threads_and_batches_wait_for_the_record(world, kind):
    """X11."""
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
    await world.all_gone()
    assert 10 == len(seen)


async def test_next_record_names_all_messages_that_arrived_meanwhile(world):
    """X11: so it costs one put per round trip, not one per message."""
    node = await world.node(world.handle, concurrency=64)
    records = Records(node)
    records.free.clear()
    await world.put_key(None)
    await until(lambda: records.count == 1)
    await world.put_keys([None] * 14)
    await until(lambda: node.gate.occupied == 15)
    assert 1 == records.count
    await turns(100)
    records.free.set()
    await world.all_gone()
    assert records.count <= 4
    assert 15 == len(world.ids)


async def test_fresh_messages_bypass_the_gate(world):
    """X11: they don't wait for a record, and none names them."""
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    recorded = await world.put_keys([None] * 4)
    await until(lambda: node.gate.occupied == 4)
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    assert 1 == records.count
    records.free.set()
    await world.all_gone()
    assert {*recorded, *fresh} == set(world.ids)


@pytest.mark.parametrize("refusals", [1, 2])
async def test_refused_record_is_written_again(world, refusals):
    """X11, L: its messages start once it is stored, and once each."""
    node = await world.node(world.handle, concurrency=8)
    records = Records(node)
    answers = records.refusals = [asyncio.get_running_loop().create_future() for _ in range(refusals)]
    answers = [*answers]
    put = await world.put_keys([None] * 14)
    await until(lambda: node.gate.occupied == 8)
    for answer in answers:
        assert not world.begun
        answer.set_exception(Refused("no room"))
        await until(lambda: node.gate.is_failing and not records.under_way)
    await world.all_gone()
    assert put == sorted(world.ids, key=put.index)
    assert {1} == {begun.attempt for every in world.begun.values() for begun in every}
    assert 0 == node.gate.occupied


@pytest.mark.parametrize("slots", [1, 8])
async def test_recorded_messages_hold_no_slot_while_records_are_refused(world, slots):
    """X11, X9: fresh messages run, and each recorded one starts once when records are accepted again."""
    node = await world.node(world.handle, concurrency=slots)
    world.server.refuse("busy.")
    put = await world.put_keys([None] * 20)
    await until(lambda: node.gate.is_failing and not node.gate.occupied)
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    assert not world.begun["acme", 0, "mid", None]
    world.server.accept("busy.")
    await world.all_gone()
    assert [Begun(message_id, 1) for message_id in sorted(put)] == sorted(world.begun["acme", 0, "mid", None])


async def test_record_is_written_during_endless_fresh_messages(world):
    """X11, L: handlers that never wait leave no idle turn of the loop."""
    fresh = [each for group in range(4) for each in await world.put_keys([None] * 250, project="shop", group=group)]
    recorded = await world.put_keys([None])
    node = await world.idle_node(world.handle, concurrency=64)
    put, handled = node.store.put, []

    def noted(subject, *rest):
        if subject.startswith("busy."):
            handled.append(len(world.handled))
        return put(subject, *rest)

    node.store.put = noted
    node.trust(0)
    await node.take_over(range(CLUSTER_CONFIG.partitions), world.next_epoch())
    shop = lambda: node.queues.of_project("shop")  # noqa: E731
    await until(lambda: sum(len(queue.ready) for queue in shop()) == len(fresh) and node.queues.of_project("acme"))
    node.trust(FAR)
    await world.all_gone()
    assert {*fresh, *recorded} == set(world.ids)
    assert handled[0] < 10, "the record is put after a few messages, not after all"


async def test_queue_is_suspended_when_too_many_messages_wait(world):
    """M, X11: at most 1,024 messages are set aside. The rest of a backlog stays in its queue, which isn't read, and all
    of it starts later, in order.
    """
    node = await world.node(world.handle, concurrency=8)
    world.server.refuse("busy.")
    put = await world.put_keys([None] * (MOST_ASIDE + 500))
    await until(lambda: node.queues.of_project("acme"))
    (queue,) = node.queues.of_project("acme")
    await until(lambda: node.eligibility.should_suspend(queue) and not queue.loading)
    assert len(node.eligibility.list_resting(queue)) <= MOST_ASIDE + 1
    reads = Reads(node)
    put += await world.put_keys([None] * 20)
    await turns(100)
    assert 0 == reads.count, "payloads would be unloaded again"
    fresh = await world.put_keys([None] * 20, project="shop")
    await until(lambda: set(fresh) == set(world.ids))
    world.server.accept("busy.")
    await world.all_gone()
    assert put == [each.id for each in world.begun["acme", 0, "mid", None]]


async def test_next_record_omits_ended_messages(world):
    """X11: it is written though no other message starts. Otherwise a much later death would count an attempt."""
    node = await world.node(world.handle)
    records = Records(node)
    await world.put_keys([None] * 5)
    await world.all_gone()
    await until(lambda: not records.safe)
    last = records.count
    await asyncio.sleep(0.3)  # three times the pause before such a record
    assert last == records.count, "nothing has changed, so no record is written"
    world.act = held = Held(slow := await world.put_key(None))
    await world.until_begun(slow)
    quick = await world.put_key(None)
    await until(lambda: quick in world.ids)
    await until(lambda: len(records.safe) == 1)
    assert [place_of(message) for message in node.workers.running] == [*records.safe]
    held.go()


async def test_record_omits_messages_that_ended_during_the_previous_write(world):
    """X11: the record under way still names it."""
    loop = asyncio.get_running_loop()
    put = await world.put_keys([None] * 2)
    world.act = held = Held(*put, "long")
    node = await world.node(world.handle)
    await until(lambda: len(node.workers.running) == 2)
    records = Records(node)
    records.free.clear()
    put.append(await world.put_key(None, id="long"))
    await until(lambda: records.under_way)
    held.go(put[0])
    await until(lambda: world.ids)
    ended_at = loop.time()
    await until(lambda: loop.time() > ended_at + 0.2)  # the gate tries to write the next record after 0.1 s
    records.free.set()
    await until(lambda: len(node.workers.running) == 2)
    running = {place_of(message) for message in node.workers.running}
    await until(lambda: records.safe == running, what=f"a record that names only {running}")
    held.go()


async def test_each_process_has_its_own_record(world):
    """X11: a restarted node must not overwrite the record of its previous process."""
    (message_id,) = await world.put_keys([None])
    world.act = Held(message_id)
    first = await world.node(world.handle, node_id="n")
    await world.until_begun(message_id)
    await world.crash(first)
    second = await world.node(world.handle, node_id="n")
    await until(lambda: second.workers.running)
    assert 2 == len(world.server.messages(busy_stream("online")))
