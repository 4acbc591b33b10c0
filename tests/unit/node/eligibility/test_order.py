"""Ordered topics on a node: the messages of a key run one after another, and other keys run meanwhile (K6)."""

import asyncio
import random
import threading

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.message.handler_exceptions import Retry
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import KEYS, QUICK, Held, KeyedWorld, RandomHandler, ordered
from tests.support.node.world import SECOND, topic
from tests.support.until import until

SHAPES = {
    "all in memory": {},
    "small read-ahead": {"read_ahead": 2},
    "spilled": {"index": 3, "read_ahead": 2},
    "no room": {"payload_bytes": 200, "read_ahead": 2, "index": 5},
    "no room behind": {"payload_bytes": 200},
}


@pytest.fixture
async def world():
    async with KeyedWorld() as made:
        yield made


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
async def test_each_key_keeps_its_order(world, shape, seed):
    """E13, K2, K4: with handlers of random length that fail at random, 64 workers and any memory limits. Messages are
    put before and during the run, and the topic is paused and resumed in the middle. Each message ends once, handled or
    dead-lettered.
    """
    draw = random.Random(f"{shape} {seed}")
    world.act = RandomHandler(seed)
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
    await world.all_gone()
    world.assert_in_order()
    dead = {h.value(each.headers, h.ID).split(":")[1] for each in world.dead()}
    assert len(world.ids) == len(set(world.ids))
    assert not dead & set(world.ids)
    assert {message_id for put in world.put_by_key.values() for message_id in put} == dead | set(world.ids)
    assert all_attempts_rise(world)
    assert (0, 0) == (node.limits.used_bytes, node.backlog)


def all_attempts_rise(world):
    """Whether the attempts of each message are 1, 2, 3 in turn. A pause doesn't count."""
    tries = {}
    for each in [each for every in world.begun.values() for each in every]:
        if each.attempt not in {tries.get(each.id, 0), tries.get(each.id, 0) + 1}:
            return False
        tries[each.id] = each.attempt
    return True


async def test_other_keys_run_while_a_key_waits(world):
    """E13: only its own key waits behind a message that takes long, or waits for its next attempt."""
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
    await world.all_gone()
    world.assert_in_order()


async def test_key_is_ordered_per_group_and_priority(world):
    """K6."""
    first = await world.put_key("k")
    world.act = held = Held(first)
    others = [await world.put_key("k", priority="low"), await world.put_key("k", group=1), await world.put_key(None)]
    behind = await world.put_key("k")
    await world.node(world.handle)
    await until(lambda: set(others) == set(world.ids))
    held.go()
    await world.all_gone()
    assert behind == world.ids[-1]


async def test_retry_of_ordered_topic_runs_on_time(world):
    """K2: as exactly as in any topic, though the message stays in its lane."""
    times = []

    async def act(message):
        times.append(asyncio.get_running_loop().time())
        if message.attempt <= 4:
            raise Retry(after=0.02)

    world.act, world.topics["acme"] = act, ordered(max_attempts=5)
    await world.put_key("k")
    await world.node(world.handle)
    await world.all_gone()
    assert 5 == len(times)
    assert times[-1] - times[0] < 0.9


async def test_retry_of_ordered_topic_arrives_again(world):
    """X12: its failed attempt counts as a departure, although the message stays in its stream."""
    fails = iter([True, True, False])

    async def act(message):
        if next(fails):
            raise RuntimeError("two attempts fail")

    world.act = act
    await world.put_key("a")
    node = await world.node(world.handle)
    await until(lambda: world.handled)
    (queue,) = node.queues.of_project("acme")
    await until(lambda: queue.stats.handled)
    assert (3, 1, 2) == (queue.stats.arrived, queue.stats.handled, queue.stats.retried)


async def test_key_is_ordered_across_lane_and_delay_stream(world):
    """K1: one message of a key runs at a time, and delayed ones run in the order of their due times."""
    draw = random.Random(3)
    world.act = RandomHandler(3, hangs=False)
    now = world.store.now()
    dues = sorted(draw.sample(range(20), 12))
    delayed = [await world.put_key("k", due=now + due * SECOND // 50) for due in dues]
    undelayed = []
    await world.node(world.handle, limits=MemoryBudget(index=4, read_ahead=2))
    for _ in range(12):
        undelayed.append(await world.put_key("k"))
        await asyncio.sleep(0.01)
    await world.all_gone()
    assert [] == world.overlaps
    began = world.ids_of("k")
    assert undelayed == [message_id for message_id in began if message_id in undelayed]
    assert delayed == [message_id for message_id in began if message_id in delayed]
    assert all_attempts_rise(world)


async def test_ordered_can_be_switched_on_and_off(world):
    """X4, L: in the middle of a backlog, both ways. Nothing is lost, and messages that start under `ordered` are in
    order once those that ran at the switch have ended.
    """
    draw = random.Random(5)
    world.act = RandomHandler(5, hangs=False)
    node = await world.node(world.handle, concurrency=64, limits=MemoryBudget(index=10, read_ahead=4))
    for on in [False, True, False, True]:
        before = len(world.handled)
        await world.put_keys(draw.choices(KEYS, k=40))
        await world.changed(node, ordered=on, backoff={"base": 0.01, "jitter": 0}, max_attempts=3)
        await until(lambda before=before: len(world.handled) > before + 15)
    await until(lambda: not node.in_flight and not list(node.eligibility.iter_retrying()) and not node.backlog)
    await world.all_gone()
    for seen in (world.overlaps, world.put_by_key, world.begun):
        seen.clear()
    await world.put_keys(draw.choices(KEYS[:3], k=60))
    await world.all_gone()
    world.assert_in_order()
    assert 0 == node.limits.used_bytes


async def test_waiting_messages_start_when_topic_stops_being_ordered(world):
    """X4, L: at once, not when their key is free."""
    put = await world.put_keys(["k"] * 6)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    await until(lambda: any(queue.order.waiting == 5 for queue in node.queues.all()))
    await world.changed(node, ordered=False)
    await until(lambda: set(put[1:]) == set(world.ids))
    held.go()
    await world.all_gone()


@pytest.mark.parametrize(
    ("rules", "key"), [(ordered(), None), (topic(backoff=QUICK), "k")], ids=["no key", "unordered topic"]
)
async def test_messages_without_order_run_concurrently(rules, key):
    """K6: and each failed message is copied to the delay stream."""
    wall = asyncio.Barrier(8)

    async def act(message):
        if message.attempt == 1:
            await wall.wait()
            raise ValueError("once")

    async with KeyedWorld(acme=rules) as world:
        world.act = act
        await world.put_keys([key] * 8)
        node = await world.node(world.handle, concurrency=8)
        await world.all_gone()
        assert (8, 8) == (node.counters.retried, len(world.ids))


async def test_batch_has_one_message_per_key(world):
    """E13: even if it fails as a whole, and its messages are tried again."""
    batches = []

    @batch(max=5)
    async def handle(messages):
        batches.append(messages)
        for message in messages:
            world.on_start(message)
        await asyncio.sleep(0)
        for message in messages:
            world.running["acme", 0, "mid", message.key].remove(message.id)
        if messages[0].attempt == 1 and len(batches) % 3 == 0:
            raise ValueError("no")
        world.handled.extend(messages)

    await world.put_keys(["a", "b", "c", "a", "a", "b"] * 10)
    await world.node(handle)
    await world.all_gone()
    world.assert_in_order()
    assert all(len({message.key for message in each}) == len(each) for each in batches)
    assert 3 == max(len(each) for each in batches)
    assert 60 == len(set(world.ids))


async def test_handlers_in_threads_keep_the_order(world):
    """K9: two keys at a time."""
    wall, lock = threading.Barrier(2, timeout=30), threading.Lock()

    def handle(message):
        with lock:
            world.on_start(message)
        wall.wait()
        with lock:
            world.running["acme", 0, "mid", message.key].remove(message.id)
            world.handled.append(message)

    await world.put_keys(["a", "b"] * 20)
    await world.node(handle, concurrency=4)
    await world.all_gone()
    assert 40 == len(world.ids)
    world.assert_in_order()


async def test_wait_reason_is_ordered_behind_a_running_key(world):
    """X8: only messages behind their keys are left in the queue."""
    put = await world.put_keys(["k"] * 3)
    world.act = held = Held(put[0])
    node = await world.node(world.handle)
    queue = await until(lambda: next((q for q in node.queues.all() if q.order.waiting == 2), None))
    assert "ordered" == node.wait_rules.reason(queue)
    assert 2 == queue.backlog
    held.go()
    await world.all_gone()
    assert node.wait_rules.reason(queue) is None


async def test_invalid_key_headers_do_no_harm(world):
    """E12: other programs write to the stream, too."""
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
    await world.all_gone()
    assert 12 == len(world.handled)
