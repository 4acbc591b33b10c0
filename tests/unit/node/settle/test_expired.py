"""What has outlived its time isn't handled; with `dead_letter_expired` it is kept (K5)."""

import asyncio

import pytest

from evenlane.engine.core.message.message import Retry
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.gate_records import Records
from tests.support.node.keyed import QUICK, Held, Keyed, ordered
from tests.support.node.world import SECOND, topic
from tests.support.until import until


@pytest.fixture(params=[False, True], ids=["only counted", "dead-lettered"])
def kept(request):
    return request.param


@pytest.fixture
async def world(kept):
    async with Keyed(acme=topic(dead_letter_expired=kept, backoff=QUICK)) as made:
        yield made


def dead_letters(world):
    return [(h.value(each.headers, h.REASON), h.value(each.headers, h.ATTEMPT)) for each in world.dead()]


async def over(world, kept, node, count=1):
    """They have ended, and are counted and kept as they should be."""
    await world.all_over()
    assert (count, count * kept) == (node.counters.expired, node.counters.dead)
    assert [("expired", "1")] * (count * kept) == dead_letters(world)


async def test_by_its_own_time(world, kept):
    """K5: `ttl` of the put."""
    await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})
    fresh = await world.put(headers={h.EXPIRES: str(world.store.now() + 600 * SECOND)})
    node = await world.node(world.handle)
    await over(world, kept, node)
    assert [fresh] == world.ids


async def test_by_its_topics_time(world, kept):
    """K5: while no node was there, or the topic paused."""
    world.topics["acme"] = topic(dead_letter_expired=kept, ttl=1, state="paused")
    await world.put_keys([None] * 3)
    node = await world.node(world.handle)
    old = world.store.now()
    await until(lambda: world.store.now() > old + SECOND)
    fresh = await world.put_key(None)
    await world.changed(node, dead_letter_expired=kept, ttl=1)
    await over(world, kept, node, 3)
    assert [fresh] == world.ids
    assert 3 == next(iter(node.queues.all())).failed


async def test_delayed_ones_from_their_due_time(world, kept):
    """K5: not from their put."""
    world.topics["acme"] = topic(dead_letter_expired=kept, ttl=1)
    now = world.store.now()
    gone = await world.put(due=now - 2 * SECOND)
    fresh = [await world.put(due=now + SECOND // 10), await world.put(due=now)]
    node = await world.node(world.handle)
    await over(world, kept, node)
    assert set(fresh) == set(world.ids)
    assert gone not in world.ids


async def test_a_delayed_one_that_expires_before_it_is_due(world, kept):
    """K5: its own time is a point in time."""
    now = world.store.now()
    await world.put(due=now + SECOND // 10, headers={h.EXPIRES: str(now + SECOND // 20)})
    node = await world.node(world.handle)
    await over(world, kept, node)
    assert [] == world.ids


async def test_between_two_attempts(world, kept):
    """K2, K5: its own time is kept over retries."""

    async def act(message):
        raise Retry(after=0.3)

    world.act = act
    own = await world.put(headers={h.EXPIRES: str(world.store.now() + SECOND // 4)})
    node = await world.node(world.handle)
    await world.all_over()
    assert [(own, 1)] == world.begun["acme", 0, "mid", None]
    assert 1 == node.counters.expired
    assert [("expired", "2")] * kept == dead_letters(world)


async def test_a_flood_of_them(world, kept):
    """K5, E13: a thousand that have expired keep a fresh one waiting for no longer than it takes to look at them."""
    past = str(world.store.now() - 1)
    for _ in range(1_000):
        await world.put(headers={h.EXPIRES: past})
    fresh = await world.put_key(None)
    node = await world.node(world.handle)
    await until(lambda: world.ids == [fresh])
    await until(lambda: node.counters.expired == 1_000)
    await world.all_over()
    assert 1_000 * kept == len(world.dead())
    assert 0 == node.limits.held


@pytest.mark.parametrize("refused", [False, True], ids=["late", "refused"])
async def test_while_the_record_that_names_them_is_on_its_way(world, kept, refused):
    """K5, X11: NATS may be away for longer than they may wait."""
    world.topics["acme"] = topic(dead_letter_expired=kept, max_attempts=1)
    node = await world.node(world.handle)
    records = Records(node)
    records.free.clear()
    answer = asyncio.get_running_loop().create_future()
    records.refusals = [answer]
    past = world.store.now() + SECOND // 4
    for _ in range(3):
        await world.put(headers={h.EXPIRES: str(past)})
    fresh = await world.put_key(None)
    await until(lambda: node.gate.held == 4)
    assert not node.counters.expired
    if refused:
        answer.set_exception(Lost("cut off"))
        await until(lambda: node.gate.failing)
    else:
        answer.set_result(None)
    await until(lambda: world.store.now() > past)
    records.free.set()
    await over(world, kept, node, 3)
    assert [fresh] == world.ids
    assert 0 == node.gate.held


async def test_dead_letters_that_are_refused(world, kept):
    """L: what can't be kept stays where it is."""
    world.server.refuse("dead.")
    await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})
    node = await world.node(world.handle)
    await until(lambda: node.counters.expired)
    if kept:
        await until(lambda: node.failures.pending)
        assert 1 == world.waiting()
    world.server.accept("dead.")
    await over(world, kept, node)


async def test_a_fallback_takes_them_too(kept):
    """K4: as all that would be dead."""
    taken = []
    async with Keyed(acme=topic(dead_letter_expired=kept)) as world:
        own = await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})

        async def fallback(message):
            taken.append((message.id, message.reason, message.error))

        node = await world.node(world.handle, fallback=Handler.of(fallback))
        await world.all_over()
        assert [(own, "expired", "")] * kept == taken
        assert [] == world.dead()
        assert (1, kept) == (node.counters.expired, node.counters.fallen_back)


async def test_of_an_ordered_topic(kept):
    """Item 4: it frees its key, also where it waited behind another one."""
    async with Keyed(acme=ordered(dead_letter_expired=kept)) as world:
        first = await world.put_key("k")
        world.act = held = Held(first)
        past = world.store.now() + SECOND // 10
        for _ in range(3):
            await world.put(headers={h.KEY: "k", h.EXPIRES: str(past)})
        last = await world.put_key("k")
        node = await world.node(world.handle)
        await until(lambda: world.store.now() > past)
        held.go()
        await world.all_over()
        assert [first, last] == world.ids
        assert (3, 3 * kept) == (node.counters.expired, len(world.dead()))


async def test_a_suspect_that_expires_leaves_the_others_their_turn(world, kept):
    """X11, L: it is never handled, and those set aside for it come all the same."""
    slow, gone, last = await world.put_key(None), None, None
    past = world.store.now() + 2 * SECOND
    gone = await world.put(headers={h.EXPIRES: str(past)})
    last = await world.put_key(None)
    world.act = Held(slow, gone, last)
    for _ in range(2):
        node = await world.node(world.handle)
        await until(lambda node=node: len(node.workers.running) == 3)
        await world.crash(node)
    world.act = held = Held(slow)
    node = await world.node(world.handle)
    (queue,) = node.queues.all()
    await until(lambda: len(node.eligibility.resting(queue)) == 2)
    await until(lambda: world.store.now() > past)
    held.go()
    await world.all_over()
    assert [slow, last] == world.ids
    assert 1 == node.counters.expired
