"""Ordered topics on a node (issue 5, item 4): a key's messages go one after the other, other keys go on meanwhile."""

import asyncio
import random
import threading

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.message.message import Retry, batch
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.queue_head import place_of_head, queue_head
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import KEYS, Chance, Held, Keyed, ordered
from tests.support.node.world import SECOND, topic
from tests.support.until import until

SHAPES = {
    "all at hand": {},
    "little at hand": {"read_ahead": 2},
    "spilled": {"index": 3, "read_ahead": 2},
    "no room": {"payload_bytes": 200, "read_ahead": 2, "index": 5},
    "no room behind": {"payload_bytes": 200},
}


@pytest.fixture
async def world():
    async with Keyed() as made:
        yield made


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
async def test_each_key_keeps_its_order(world, shape, seed):
    """E13, K2, K4: whatever the lengths of handlers and whatever fails, under 64 workers and in any state of memory;
    puts come before and during it, the topic is paused and resumed in the middle. Each ends once, handled or dead.
    """
    draw = random.Random(f"{shape} {seed}")
    world.act = Chance(seed)
    world.topics["acme"] = ordered(ack_wait=0.2)
    count = draw.randint(60, 120)

    async def put(count):
        for _ in range(count):
            await world.put_key(
                draw.choice(KEYS), group=draw.choice([0, 0, 1]), priority=draw.choice(["mid", "mid", "low"]),
                size=draw.randint(1, 60),
            )  # fmt: skip

    await put(count)
    node = await world.node(world.handle, concurrency=64, limits=MemoryBudget(**SHAPES[shape]))
    await put(20)
    await until(lambda: len(world.handled) > draw.randint(0, count // 2))
    await world.changed(node, ordered=True, state="paused", ack_wait=0.2)
    await put(20)
    await until(lambda: not node.in_flight)
    await world.changed(node, ordered=True, max_attempts=3, backoff={"base": 0.01, "jitter": 0}, ack_wait=0.2)
    await put(20)
    await world.all_over()
    world.in_order()
    dead = {h.value(each.headers, h.ID).split(":")[1] for each in world.dead()}
    assert len(world.ids) == len(set(world.ids))
    assert not dead & set(world.ids)
    assert {own for put in world.put_to.values() for own in put} == dead | set(world.ids)
    assert all_attempts_rise(world)
    assert (0, 0) == (node.limits.held, node.backlog)


def all_attempts_rise(world):
    """Of each message 1, 2, 3 in turn; a pause doesn't count."""
    tries = {}
    for each in [each for every in world.begun.values() for each in every]:
        if each.attempt not in {tries.get(each.id, 0), tries.get(each.id, 0) + 1}:
            return False
        tries[each.id] = each.attempt
    return True


async def test_other_keys_go_on(world):
    """E13: behind a message that takes long, or waits for its next attempt, only its own key waits."""
    slow, failing = await world.put_keys(["slow", "failing"])
    held = Held(slow)

    async def act(message):
        if message.id == failing and message.attempt == 1:
            raise Retry(after=0.3)
        await held(message)

    world.act = act
    await world.put_keys(["slow", "failing"] * 20)
    others = await world.put_keys(["x", "y", None] * 20)
    node = await world.node(world.handle)
    await until(lambda: set(others) == set(world.ids))
    assert [slow] == world.ids_of("slow")
    assert 39 <= sum(queue.order.waiting for queue in node.queues.all())
    held.go()
    await world.all_over()
    world.in_order()


async def test_a_later_priority_and_another_group_have_keys_of_their_own(world):
    """Item 4: order is kept among a key's messages of one priority."""
    first = await world.put_key("k")
    world.act = held = Held(first)
    others = [await world.put_key("k", priority="low"), await world.put_key("k", group=1), await world.put_key(None)]
    behind = await world.put_key("k")
    await world.node(world.handle)
    await until(lambda: set(others) == set(world.ids))
    held.go()
    await world.all_over()
    assert behind == world.ids[-1]


@pytest.mark.parametrize(("count", "index"), [(60, 3), (400, 100)], ids=["few", "more than payloads are kept"])
async def test_more_wait_behind_a_key_than_may(world, count, index):
    """M: at most `limits.index` of a queue wait behind keys; further ones stay where they are, and all come."""
    put = await world.put_keys(["k"] * count)
    world.act = held = Held(put[0])
    node = await world.node(world.handle, concurrency=64, limits=MemoryBudget(index=index))
    queue = await until(lambda: next((q for q in node.queues.all() if q.order.full), None))
    assert index == queue.order.waiting
    held.go()
    await world.all_over()
    assert put == world.ids
    assert not queue.order.full
    assert 0 == node.limits.held


async def test_a_retry_comes_while_as_many_wait_as_may(world):
    """L: the one whose turn it is passes those that were turned away."""

    async def act(message):
        if message.attempt < 3:
            raise ValueError("no")

    world.act = act
    put = await world.put_keys(["k"] * 20 + ["other"] * 5)
    await world.node(world.handle, limits=MemoryBudget(index=3))
    await world.all_over()
    assert put == sorted(world.ids, key=put.index)
    world.in_order()


async def test_a_retry_comes_at_its_time(world):
    """K2: as exact as in any topic, though the message stays where it is."""
    times = []

    async def act(message):
        times.append(asyncio.get_running_loop().time())
        if message.attempt <= 4:
            raise Retry(after=0.02)

    world.act, world.topics["acme"] = act, ordered(max_attempts=5)
    await world.put_key("k")
    await world.node(world.handle)
    await world.all_over()
    assert 5 == len(times)
    assert times[-1] - times[0] < 0.9


async def test_where_as_many_wait_as_may_other_keys_wait_too_but_come(world):
    """M, L: what stands in the queue behind a message that was turned away."""
    first = await world.put_key("k")
    world.act = held = Held(first)
    await world.put_keys(["k"] * 10)
    other = await world.put_key("other")
    node = await world.node(world.handle, limits=MemoryBudget(index=3))
    await until(lambda: any(queue.order.full for queue in node.queues.all()))
    assert other not in world.ids
    held.go()
    await world.all_over()
    assert 12 == len(world.ids)
    world.in_order()


async def test_delayed_ones_keep_their_key_too(world):
    """K1: of both streams together one of a key is out; delayed ones in the order of their due times."""
    draw = random.Random(3)
    world.act = Chance(3, hangs=False)
    now = world.store.now()
    dues = sorted(draw.sample(range(20), 12))
    late = [await world.put_key("k", due=now + due * SECOND // 50) for due in dues]
    soon = []
    await world.node(world.handle, limits=MemoryBudget(index=4, read_ahead=2))
    for _ in range(12):
        soon.append(await world.put_key("k"))
        await asyncio.sleep(0.01)
    await world.all_over()
    assert [] == world.together
    began = world.ids_of("k")
    assert soon == [own for own in began if own in soon]
    assert late == [own for own in began if own in late]
    assert all_attempts_rise(world)


async def test_order_can_be_switched_on_and_off(world):
    """X4, L: in the middle of a backlog, both ways: nothing is lost; what begins under `ordered` is in order, once what
    was out at the switch has ended.
    """
    draw = random.Random(5)
    world.act = Chance(5, hangs=False)
    node = await world.node(world.handle, concurrency=64, limits=MemoryBudget(index=10, read_ahead=4))
    for on in [False, True, False, True]:
        before = len(world.handled)
        await world.put_keys(draw.choices(KEYS, k=40))
        await world.changed(node, ordered=on, backoff={"base": 0.01, "jitter": 0}, max_attempts=3)
        await until(lambda before=before: len(world.handled) > before + 15)
    await until(lambda: not node.in_flight and not list(node.eligibility.retrying()) and not node.backlog)
    await world.all_over()
    for noted in (world.together, world.put_to, world.begun):
        noted.clear()
    await world.put_keys(draw.choices(KEYS[:3], k=60))
    await world.all_over()
    world.in_order()
    assert 0 == node.limits.held


async def test_what_waits_behind_keys_goes_when_the_topic_is_no_longer_ordered(world):
    """X4, L: at once, not when the key is free."""
    put = await world.put_keys(["k"] * 6)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    await until(lambda: any(queue.order.waiting == 5 for queue in node.queues.all()))
    await world.changed(node, ordered=False)
    await until(lambda: set(put[1:]) == set(world.ids))
    held.go()
    await world.all_over()


async def test_keyless_ones_go_beside_each_other(world):
    """Item 4: without a key there is no order, and a failed one is copied to the later stream as in any topic."""

    async def act(message):
        if message.attempt == 1:
            await wall.wait()
            raise ValueError("once")

    wall, world.act = asyncio.Barrier(8), act
    await world.put_keys([None] * 8)
    node = await world.node(world.handle, concurrency=8)
    await world.all_over()
    assert (8, 8) == (node.counters.retried, len(world.ids))


async def test_a_topic_that_is_not_ordered_pays_no_heed_to_keys():
    """Item 4: without `ordered` as before."""
    async with Keyed(acme=topic()) as world:
        wall = asyncio.Barrier(8)
        world.act = lambda message: wall.wait()
        await world.put_keys(["k"] * 8)
        await world.node(world.handle, concurrency=8)
        await world.all_over()
        assert 8 == len(world.ids)


async def test_a_batch_has_one_message_of_a_key(world):
    """E13: also where it fails as a whole, and where its messages are tried again."""
    batches = []

    @batch(max=5)
    async def handle(messages):
        batches.append(messages)
        for message in messages:
            world.starts(message)
        await asyncio.sleep(0)
        for message in messages:
            world.running["acme", 0, "mid", message.key].remove(message.id)
        if messages[0].attempt == 1 and len(batches) % 3 == 0:
            raise ValueError("no")
        world.handled.extend(messages)

    await world.put_keys(["a", "b", "c", "a", "a", "b"] * 10)
    await world.node(handle)
    await world.all_over()
    world.in_order()
    assert all(len({message.key for message in each}) == len(each) for each in batches)
    assert 3 == max(len(each) for each in batches)
    assert 60 == len(set(world.ids))


async def test_plain_handlers_keep_the_order(world):
    """K9: in threads, two keys side by side."""
    wall, lock = threading.Barrier(2, timeout=10), threading.Lock()

    def handle(message):
        with lock:
            world.starts(message)
        wall.wait()
        with lock:
            world.running["acme", 0, "mid", message.key].remove(message.id)
            world.handled.append(message)

    await world.put_keys(["a", "b"] * 20)
    await world.node(handle, concurrency=4)
    await world.all_over()
    assert 40 == len(world.ids)
    world.in_order()


async def test_a_queue_says_that_it_waits_for_order(world):
    """X8: where nothing but messages behind their keys is left."""
    put = await world.put_keys(["k"] * 3)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    queue = await until(lambda: next((q for q in node.queues.all() if q.order.waiting == 2), None))
    assert "ordered" == node.wait_rules.reason(queue)
    assert 2 == queue.backlog
    held.go()
    await world.all_over()
    assert node.wait_rules.reason(queue) is None


async def test_it_is_retried_in_its_place_from_a_spill(world):
    """M, E13: with one sequence in the index and one payload at hand."""
    world.act = Chance(11, hangs=False)
    await world.put_keys(["a", "b"] * 40)
    node = await world.node(world.handle, limits=MemoryBudget(index=1, read_ahead=1, payload_bytes=1))
    await world.all_over()
    world.in_order()
    assert 0 == node.limits.held


async def test_a_stray_key_header_harms_nothing(world):
    """E12: whoever writes to the stream himself."""
    odd = [
        b"",
        b"NATS/1.0\r\nEvenlane-Key: \r\n\r\n",
        b"NATS/1.0\r\nEvenlane-Key:k\xff",
        b"NATS/1.0\r\nEvenlane-Key: " + b"x" * 5_000,
    ]
    lane = names.lane_subject("online", 0, "acme", 0, "mid")
    for headers in odd * 3:
        await world.store.put(lane, headers, b"")
    await world.node(world.handle)
    await world.all_over()
    assert 12 == len(world.handled)


@pytest.mark.parametrize("payload_bytes", [1 << 20, 200])
async def test_what_waits_behind_a_key_has_an_age(world, payload_bytes):
    """X8: since when it waits is known, or where it lies, though it isn't at hand."""
    let = asyncio.Event()

    async def handle(message):
        await let.wait()
        await world.handle(message)

    world.topics["acme"] = ordered()
    for _ in range(3):
        await world.put_key("one", group=0, size=150)
    node = await world.node(handle, limits=MemoryBudget(payload_bytes=payload_bytes))
    await until(lambda: len(node.in_flight) == 1 and node.queues.of("acme")[0].backlog == 2)
    (queue,) = node.queues.of("acme")
    at, place = queue_head(queue), place_of_head(queue)
    assert at is not None or place == (world.busy_lane, 2)
    assert at is None or at <= node.store.now()
    let.set()
    await world.all_over()
