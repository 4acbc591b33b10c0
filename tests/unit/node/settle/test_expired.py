"""Expired messages aren't handled. With `dead_letter_expired` they are dead-lettered (K5)."""

import asyncio

import pytest

from evenlane.engine.core.message.handler_exceptions import Retry
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.gate_records import Records
from tests.support.node.keyed import QUICK, Held, KeyedWorld, ordered
from tests.support.node.world import SECOND, topic
from tests.support.until import until

TTL_S = 2  # a message must be handled within it, also on a busy machine


@pytest.fixture(params=[False, True], ids=["only counted", "dead-lettered"])
def kept(request):
    return request.param


@pytest.fixture
async def world(kept):
    async with KeyedWorld(acme=topic(dead_letter_expired=kept, backoff=QUICK)) as made:
        yield made


def dead_letters(world):
    return [(h.value(each.headers, h.REASON), h.value(each.headers, h.ATTEMPT)) for each in world.dead()]


async def until_expired(world, kept, node, count=1):
    """Wait until all messages are settled. `count` of them have expired, and are dead letters if `kept`."""
    await world.all_gone()
    assert (count, count * kept) == (node.counters.expired, node.counters.dead)
    assert [("expired", "1")] * (count * kept) == dead_letters(world)


async def test_message_expires_by_its_header(world, kept):
    """K5: the `ttl` of its put."""
    await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})
    fresh = await world.put(headers={h.EXPIRES: str(world.store.now() + 600 * SECOND)})
    node = await world.node(world.handle)
    await until_expired(world, kept, node)
    assert [fresh] == world.ids


async def test_message_expires_by_the_ttl_of_its_topic(world, kept):
    """K5: while there is no node, or the topic is paused."""
    world.topics["acme"] = topic(dead_letter_expired=kept, ttl=TTL_S, state="paused")
    await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    old = world.store.now()
    await until(lambda: world.store.now() > old + TTL_S * SECOND)
    fresh = await world.put_key(None)
    await world.changed(node, dead_letter_expired=kept, ttl=TTL_S)
    await until_expired(world, kept, node, 3)
    assert [fresh] == world.ids
    stats = next(iter(node.queues.all())).stats
    assert (3, 0) == (stats.expired, stats.dead)


async def test_ttl_of_a_delayed_message_begins_at_its_due_time(world, kept):
    """K5."""
    world.topics["acme"] = topic(dead_letter_expired=kept, ttl=60)
    now = world.store.now()
    expired = await world.put(due=now - 61 * SECOND)
    fresh = [await world.put(due=now + SECOND // 10), await world.put(due=now)]
    node = await world.node(world.handle)
    await until_expired(world, kept, node)
    assert set(fresh) == set(world.ids)
    assert expired not in world.ids


async def test_delayed_message_may_expire_before_it_is_due(world, kept):
    """K5: its header is an instant."""
    now = world.store.now()
    await world.put(due=now + SECOND // 10, headers={h.EXPIRES: str(now + SECOND // 20)})
    node = await world.node(world.handle)
    await until_expired(world, kept, node)
    assert [] == world.ids


async def test_message_expires_between_attempts(world, kept):
    """K2, K5: its copies keep the header."""

    async def act(message):
        raise Retry(after=0.3)

    world.act = act
    message_id = await world.put(headers={h.EXPIRES: str(world.store.now() + SECOND // 4)})
    node = await world.node(world.handle)
    await world.all_gone()
    assert [(message_id, 1)] == world.begun["acme", 0, "mid", None]
    assert 1 == node.counters.expired
    assert [("expired", "2")] * kept == dead_letters(world)


async def test_fresh_message_runs_behind_a_thousand_expired_ones(world, kept):
    """K5, E13."""
    expires = str(world.store.now() - 1)
    for _ in range(1_000):
        await world.put(headers={h.EXPIRES: expires})
    fresh = await world.put_key(None)
    node = await world.node(world.handle)
    await until(lambda: world.ids == [fresh])
    await until(lambda: node.counters.expired == 1_000)
    await world.all_gone()
    assert 1_000 * kept == len(world.dead())
    assert 0 == node.limits.used_bytes


@pytest.mark.parametrize("refused", [False, True], ids=["late", "refused"])
async def test_message_expires_while_its_in_flight_record_is_written(world, kept, refused):
    """K5, X11: NATS may be unreachable for longer than the message may wait."""
    world.topics["acme"] = topic(dead_letter_expired=kept, max_attempts=1)
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    answer = asyncio.get_running_loop().create_future()
    records.refusals = [answer]
    expires = world.store.now() + SECOND // 4
    for _ in range(3):
        await world.put(headers={h.EXPIRES: str(expires)})
    fresh = await world.put_key(None)
    await until(lambda: node.gate.occupied == 4)
    assert not node.counters.expired
    if refused:
        answer.set_exception(Lost("cut off"))
        await until(lambda: node.gate.is_failing)
    else:
        answer.set_result(None)
    await until(lambda: world.store.now() > expires)
    records.free.set()
    await until_expired(world, kept, node, 3)
    assert [fresh] == world.ids
    assert 0 == node.gate.occupied


async def test_expired_message_stays_while_its_dead_letter_is_refused(world, kept):
    """L."""
    world.server.refuse("dead.")
    await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})
    node = await world.node(world.handle)
    await until(lambda: node.counters.expired)
    if kept:
        await until(lambda: node.failures.pending)
        assert 1 == world.waiting()
    world.server.accept("dead.")
    await until_expired(world, kept, node)


async def test_fallback_gets_expired_messages(kept):
    """K4: if they would be dead-lettered otherwise."""
    taken = []
    async with KeyedWorld(acme=topic(dead_letter_expired=kept)) as world:
        message_id = await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})

        async def fallback(message):
            taken.append((message.id, message.reason, message.error))

        node = await world.node(world.handle, fallback=Handler.of(fallback))
        await world.all_gone()
        assert [(message_id, "expired", "")] * kept == taken
        assert [] == world.dead()
        assert (1, kept) == (node.counters.expired, node.counters.fallen_back)


async def test_expired_message_frees_its_key(kept):
    """K6: though it waited behind another message."""
    async with KeyedWorld(acme=ordered(dead_letter_expired=kept)) as world:
        first = await world.put_key("k")
        world.act = held = Held(first)
        expires = world.store.now() + SECOND // 10
        for _ in range(3):
            await world.put(headers={h.KEY: "k", h.EXPIRES: str(expires)})
        last = await world.put_key("k")
        node = await world.node(world.handle)
        await until(lambda: world.store.now() > expires)
        held.go()
        await world.all_gone()
        assert [first, last] == world.ids
        assert (3, 3 * kept) == (node.counters.expired, len(world.dead()))


async def test_expired_suspect_leaves_its_turn_to_the_others(world, kept):
    """X11, L: messages that were set aside for it run."""
    slow = await world.put_key(None)
    expires = world.store.now() + 2 * SECOND
    expired = await world.put(headers={h.EXPIRES: str(expires)})
    last = await world.put_key(None)
    world.act = Held(slow, expired, last)
    for _ in range(2):
        node = await world.node(world.handle)
        await until(lambda node=node: len(node.workers.running) == 3)
        await world.crash(node)
    world.act = held = Held(slow)
    node = await world.node(world.handle)
    (queue,) = node.queues.all()
    await until(lambda: len(node.eligibility.list_resting(queue)) == 2)
    await until(lambda: world.store.now() > expires)
    held.go()
    await world.all_gone()
    assert [slow, last] == world.ids
    assert 1 == node.counters.expired
