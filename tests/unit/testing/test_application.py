"""An application in a test: routes, typed bodies, life cycle, producer, fallback."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager

import msgspec
import pytest

from evenlane import Evenlane, EvenlaneError, Message, Reject
from evenlane.engine.errors import InvalidPut
from evenlane.testing import TestApp

TOPICS = {"orders": {"qps": 100, "burst": 50}, "mails": {"qps": 100, "burst": 50}}


class Order(msgspec.Struct):
    id: int


def shop(**options):
    app = Evenlane(**options)

    @app.handler("orders")
    async def bill(message: Message[Order]) -> None:
        if message.data.id == 0:
            raise Reject("no order")
        await app.producer.put("mails", {"order": message.data.id}, key="k")

    @app.handler("mails")
    def send(message: Message[dict]) -> None:
        assert message.data

    return app


async def test_handlers_put_further_messages_and_each_body_is_decoded():
    async with TestApp(shop(), topics=TOPICS) as t:
        await t.put("orders", Order(7))
        await t.run_until_idle()
        # In any order: a thread sends the mail, and it may end before the handler that has put it.
        assert {"orders": Order(7), "mails": {"order": 7}} == {each.project: each.data for each in t.handled}
        assert 2 == len(t.handled)


async def test_a_body_that_does_not_fit_is_a_dead_letter():
    async with TestApp(shop(), topics=TOPICS) as t:
        await t.put("orders", {"id": "seven"})
        await t.run_until_idle()
        [dead] = t.dead_letters
        assert "$.id" in dead.error


async def test_the_lifespan_begins_before_the_first_message_and_ends_after_the_last():
    events = []

    @asynccontextmanager
    async def lifespan(_app):
        await asyncio.sleep(5)
        events.append("begin")
        yield {"db": 1}
        await asyncio.sleep(5)
        events.append("end")

    app = Evenlane(lifespan=lifespan)

    @app.handler
    async def handle(message):
        events.append(message.state["db"])

    async with TestApp(app, topics=TOPICS) as t:
        await t.put("orders", b"x")
        await t.run_until_idle()
    assert ["begin", 1, "end"] == events


async def test_a_lifespan_that_fails_is_named_and_the_clock_is_restored():
    async def lifespan(_app):
        raise OSError("no database")
        yield

    async def begin():
        async with TestApp(shop(lifespan=lifespan), topics=TOPICS):
            pass

    with pytest.raises(EvenlaneError, match=r"the lifespan .*lifespan failed at its start: OSError: no database"):
        await begin()
    async with TestApp(shop(), topics=TOPICS):
        pass


async def test_async_middleware_around_a_plain_handler_is_waited_for():
    import time

    app = Evenlane()

    @app.middleware
    async def around(message, call_next):
        await call_next(message)

    @app.handler
    def work(_message):
        time.sleep(0.02)

    async with TestApp(app, topics=TOPICS) as t:
        now = t.now
        await t.put("orders", b"x")
        await t.run_until_idle()
        assert (1, now) == (len(t.handled), t.now)


async def test_the_fallback_takes_what_would_be_dead_lettered():
    app = shop()
    taken = []

    @app.fallback
    async def rescue(message):
        await asyncio.sleep(1)
        taken.append(message.reason)

    async with TestApp(app, topics=TOPICS) as t:
        await t.put("orders", Order(0))
        await t.run_until_idle()
        assert (["rejected"], []) == (taken, t.dead_letters)


async def test_a_batch_is_collected_while_the_application_becomes_idle():
    app = Evenlane()
    sizes = []

    @app.handler(batch=10, wait=0.5)
    async def work(messages):
        sizes.append(len(messages))

    async with TestApp(app, topics={"acme": {"qps": 100, "groups": 1, "burst": 50}}) as t:
        for _ in range(3):
            await t.put("acme", b"x")
        await t.run_until_idle()
        assert [3] == sizes


async def test_messages_without_a_handler_wait_and_why_says_so():
    async with TestApp(shop(), topics={**TOPICS, "other": {"qps": 1}}) as t:
        await t.put("other", b"x")
        await t.run_until_idle()
        document = t.why("other")
        reasons = {each["reason"] for part in document["priorities"] for each in part["reasons"]}
        assert ({"no_handler"}, 1, 1) == (reasons, document["backlog"], t.backlog("other"))


async def test_message_of_a_kind_without_a_handler_waits_once():
    app = Evenlane()
    app.handler("acme", kind="refund")(lambda message: None)
    async with TestApp(app, {"acme": {"qps": 100}}) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert (1, 1) == (t.backlog("acme"), t.why("acme")["backlog"])


async def test_topic_with_push_is_handled_by_the_application():
    async with TestApp(lambda message: None, {"acme": {"qps": 100, "push": {"url": "https://example.com/"}}}) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert 1 == len(t.handled)


async def test_why_names_the_quota_and_the_backlog_counts_delayed_messages():
    async with TestApp(shop(), topics={"mails": {"qps": 1, "burst": 1}}) as t:
        for number in range(3):
            await t.put("mails", {"n": number})
        await t.put("mails", {"n": 4}, delay=60)
        await t.put("mails", {"n": 5}, delay=86_400)
        await t.run_until_idle()
        document = t.why("mails")
        reasons = {each["reason"] for part in document["priorities"] for each in part["reasons"]}
        assert ({"quota", "not_due"}, 2, 4) == (reasons, document["backlog"], t.backlog("mails"))


async def test_a_put_is_checked_as_in_production():
    async with TestApp(shop(), topics=TOPICS) as t:
        receipt = await t.put("orders", Order(1), id="once")
        assert not receipt.duplicate
        assert (await t.put("orders", Order(1), id="once")).duplicate
        with pytest.raises(InvalidPut, match="delay and due are both given"):
            await t.put("orders", b"x", delay=1, due=1)
        with pytest.raises(TypeError, match="must be bytes"):
            await t.put("orders", "text")


async def test_the_fixture_restores_the_clock_of_a_forgotten_app():
    from evenlane.engine.testing.pytest_plugin import evenlane_app

    fixture = inspect.unwrap(evenlane_app)()
    make = next(fixture)
    forgotten = await make(shop(), topics=TOPICS).__aenter__()
    await forgotten.put("orders", Order(1))
    with pytest.raises(StopIteration):
        next(fixture)
    async with TestApp(shop(), topics=TOPICS) as t:
        await t.advance(1)
