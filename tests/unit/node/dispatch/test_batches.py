"""Batches: collected for a while, and with failures of single messages."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from evenlane import Evenlane, Pause, Reject, Retry
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.routes import Route, RouteTable
from evenlane.testing import TestApp
from tests.support.node.world import World, topic
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time


def batches(handler, *, most=10, wait_s=0.0):
    return RouteTable([Route("*", replace(Handler.of(handler), batch=most, batch_wait=wait_s))])


class Batches:
    """A handler that notes its batches, and when they came (s, by the loop)."""

    def __init__(self):
        self.sizes, self.times, self.ids = [], [], []

    async def __call__(self, messages):
        self.sizes.append(len(messages))
        self.times.append(asyncio.get_running_loop().time())
        self.ids += [message.id for message in messages]


@in_virtual_time
async def test_batch_starts_when_it_is_full():
    async with World() as world:
        noted, began = Batches(), asyncio.get_running_loop().time()
        await world.node(routes=batches(noted, most=5, wait_s=10))
        await world.put_many(10)
        await until(lambda: len(noted.ids) == 10)
        assert [5, 5] == noted.sizes
        assert max(noted.times) - began < 1


@in_virtual_time
async def test_batch_starts_after_its_wait():
    async with World() as world:
        noted = Batches()
        await world.node(routes=batches(noted, most=100, wait_s=2))
        began = asyncio.get_running_loop().time()
        for _ in range(8):
            await world.put()
            await asyncio.sleep(0.6)
        await until(lambda: len(noted.ids) == 8)
        assert [4, 4] == noted.sizes  # put at 0, 0.6, 1.2, 1.8; and at 2.4, 3.0, 3.6, 4.2
        assert [pytest.approx(2, abs=0.1), pytest.approx(4.4, abs=0.1)] == [time - began for time in noted.times]


async def test_expired_messages_do_not_restart_the_wait():
    app, seen = Evenlane(), []

    @app.handler("acme", batch=100, wait=5)
    async def handle(messages):
        seen.append((len(messages), t.now - began))

    async with TestApp(app, {"acme": {"qps": 100, "burst": 50, "groups": 1}}) as t:
        began = t.now
        for _ in range(20):
            await t.put("acme", ttl=1)
        await t.put("acme")
        await t.advance(60)
    assert [(1, timedelta(seconds=5))] == seen


@pytest.mark.parametrize("borrow", [True, False])
@pytest.mark.parametrize("groups", [1, 4])
async def test_batches_that_wait_are_full_at_the_rate_of_the_quota(groups, borrow):
    """Q: they save up the quota of their messages, and no more: in any window, a batch more than the rate starts."""
    app, seen = Evenlane(), []

    @app.handler("acme", batch=10, wait=2)
    async def handle(messages):
        seen.append((len(messages), (t.now - began).total_seconds()))

    async with TestApp(app, {"acme": {"qps": 100, "groups": groups, "borrow": borrow}}) as t:
        began, rate = t.now, 100 if borrow else 100 / groups
        for _ in range(100):
            await t.put("acme", key="k")
        await t.advance(30)
    assert [10] * 10 == [size for size, _ in seen]
    assert [pytest.approx(number * 10 / rate, rel=0.12, abs=0.02) for number in range(10)] == [at for _, at in seen]


@in_virtual_time
async def test_queue_that_collects_holds_no_slot_and_delays_nobody():
    """Other queues start at once, even with a single slot."""
    async with World(acme=topic(), bolt=topic()) as world:
        slow = Batches()
        collecting = replace(Handler.of(slow), batch=100, batch_wait=30)
        await world.node(
            routes=RouteTable([Route("acme", collecting), Route("bolt", Handler.of(world.note))]), concurrency=1
        )
        await world.put(project="acme")
        await world.put_many(5, project="bolt")
        await until(lambda: len(world.handled) == 5, 5)
        assert [] == slow.ids


@in_virtual_time
async def test_takeover_during_a_wait_loses_nothing():
    async with World() as world:
        first, second = Batches(), Batches()
        node = await world.node(routes=batches(first, most=100, wait_s=30))
        ids = await world.put_many(5)
        await until(lambda: node.backlog == 5)
        assert await node.stop()
        await world.node(routes=batches(second, most=5, wait_s=30))
        await until(lambda: len(second.ids) == 5)
        assert sorted(ids) == sorted(second.ids)
        assert [] == first.ids


async def test_single_messages_of_a_batch_fail():
    """The others succeed; each failure has its own outcome."""
    seen = []

    async def handle(messages):
        for message in messages:
            seen.append((message.body, message.attempt))
            if message.body in errors and (message.attempt == 1 and seen.count((message.body, 1)) == 1):
                message.fail(errors[message.body])

    errors = {b"1": ValueError("odd"), b"2": Retry(0.01), b"3": Reject("no"), b"4": Pause(0.01)}
    async with World() as world:
        node = await world.node(routes=batches(handle))
        await world.put_many(6)
        await world.all_gone()
        attempts = {body: [attempt for each, attempt in seen if each == body] for body in {body for body, _ in seen}}
        assert {b"0": [1], b"1": [1, 2], b"2": [1, 2], b"3": [1], b"4": [1, 1], b"5": [1]} == attempts
        assert [b"3"] == [dead.body for dead in world.dead()]
        assert 5 == node.counters.handled


async def test_batch_that_raises_keeps_the_failures_of_single_messages():
    async def handle(messages):
        for message in messages:
            if message.body == b"0":
                message.fail(Reject("no"))
        if messages[-1].attempt == 1:
            raise RuntimeError("all others")

    async with World() as world:
        await world.node(routes=batches(handle))
        await world.put_many(3)
        await world.all_gone()
        assert [b"0"] == [dead.body for dead in world.dead()]


async def test_fail_raises_in_a_handler_of_one_message():
    async def handle(message):
        message.fail(Reject("no"))
        raise AssertionError

    async with World() as world:
        await world.node(handle)
        await world.put()
        await world.all_gone()
        assert 1 == len(world.dead())


async def test_fail_needs_an_exception():
    found = []

    async def handle(messages):
        with pytest.raises(TypeError, match="needs an exception, and this is of type str"):
            messages[0].fail("no")
        found.append(messages)

    async with World() as world:
        await world.node(routes=batches(handle))
        await world.put()
        await until(lambda: found)
