"""Middleware around handlers, async and plain."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from evenlane import ConfigError, Evenlane, Reject
from evenlane.engine.node.handlers.routes import RouteTable
from tests.support.app import Running
from tests.support.node.world import topic
from tests.support.until import until


def layers(seen, is_async, name):
    async def around(message, call_next):
        seen.append(f"{name} begins")
        result = await call_next(message)
        seen.append(f"{name} ends")
        return result

    def around_plainly(message, call_next):
        seen.append(f"{name} begins")
        result = call_next(message)
        seen.append(f"{name} ends")
        return result

    return around if is_async else around_plainly


@pytest.mark.parametrize("handler", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("outer", [True, False])
async def test_first_middleware_is_outermost_whatever_is_async(outer, inner, handler):
    seen = []
    app = Evenlane(middleware=[layers(seen, outer, "outer")])
    app.middleware(layers(seen, inner, "inner"))

    async def handle(message):
        seen.append("handled")

    def handle_plainly(message):
        seen.append("handled" if threading.current_thread() is not threading.main_thread() else "in the loop")

    app.handler(handle if handler else handle_plainly)
    async with Running(app, "acme") as running:
        await running.put("acme")
        await running.all_gone()
    assert ["outer begins", "inner begins", "handled", "inner ends", "outer ends"] == seen


@pytest.mark.parametrize("is_async", [True, False])
async def test_error_of_the_handler_passes_through(is_async):
    seen = []
    app = Evenlane()

    @app.handler
    async def handle(message):
        raise Reject("no")

    async def catch(message, call_next):
        try:
            await call_next(message)
        except Reject as error:
            seen.append(str(error))
            raise

    def catch_plainly(message, call_next):
        try:
            call_next(message)
        except Reject as error:
            seen.append(str(error))
            raise

    app.middleware(catch if is_async else catch_plainly)
    async with Running(app, "acme") as running:
        await running.put("acme")
        await running.all_gone()
        assert 1 == len(running.dead())
    assert ["no"] == seen


async def test_middleware_may_settle_a_message_without_its_handler():
    app = Evenlane()

    @app.handler
    async def handle(message):
        raise AssertionError

    @app.middleware
    async def skip(message, call_next):
        pass

    async with Running(app, "acme") as running:
        await running.put("acme")
        await running.all_gone()
        assert [] == running.dead()


async def test_middleware_that_swallows_the_cancellation_settles_nothing():
    """X11: a handler that was cancelled hasn't handled its message."""
    app = Evenlane()

    @app.handler
    async def handle(message):
        await asyncio.Event().wait()

    @app.middleware
    async def swallow(message, call_next):
        with suppress(asyncio.CancelledError):
            await call_next(message)

    async with Running(app, "acme") as running:
        running.topics["acme"] = topic(ack_wait=0.2, max_attempts=1)
        await running.put("acme")
        await until(running.dead)
        assert b"the middleware" in running.dead()[0].headers
        assert b"swallowed the CancelledError of its handler" in running.dead()[0].headers


async def test_middleware_that_swallows_the_cancellation_of_a_stop_costs_no_attempt():
    """X11: the node cancels what its drain can't wait for; the messages are handled again."""
    app = Evenlane()

    @app.handler
    async def handle(message):
        if message.attempt == 1 and not started:
            started.append(message.id)
            await asyncio.Event().wait()

    @app.middleware
    async def swallow(message, call_next):
        with suppress(asyncio.CancelledError):
            await call_next(message)

    started = []
    async with Running(app, "acme") as running:
        running.topics["acme"] = topic(max_attempts=1)
        await running.put("acme")
        await until(lambda: started)
        assert running.app_node is not None
        await running.app_node.stop(1.0)  # what is done must be settled within this, too
        assert [] == running.dead()
        await running.node(routes=RouteTable.of(running.note))
        await until(lambda: [1] == [message.attempt for message in running.handled])


async def test_middleware_that_forgets_to_await():
    app = Evenlane()

    @app.handler
    async def handle(message):
        pass

    @app.middleware
    async def forget(message, call_next):
        call_next(message).close()

    async with Running(app, "acme") as running:
        running.topics["acme"] = topic(max_attempts=1)
        await running.put("acme")
        await until(running.dead)
        assert b"did not await call_next(message)" in running.dead()[0].headers


async def test_middleware_of_a_batch_gets_the_list():
    app, seen = Evenlane(), []

    @app.handler(batch=10)
    async def handle(messages: list):
        pass

    @app.middleware
    async def note(messages, call_next):
        seen.append(len(messages))
        await call_next(messages)

    async with Running(app, "acme") as running:
        await running.put("acme")
        await running.all_gone()
    assert [1] == seen


def generator(message, call_next):
    yield


@pytest.mark.parametrize(
    ("middleware", "sentence"),
    [
        (3, "the middleware 3 is not a function"),
        (lambda message: None, "must take two arguments, the message and call_next"),
        (generator, "the middleware generator is a generator"),
    ],
)
def test_middleware_that_can_not_work(middleware, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Evenlane(middleware=[middleware])


@pytest.mark.parametrize("middleware", [None, generator])
def test_middleware_must_be_a_list(middleware):
    with pytest.raises(ConfigError, match="middleware must be a list of functions, and this is of type"):
        Evenlane(middleware=middleware)


def test_builtin_without_a_signature_is_taken():
    """Nothing is known of its arguments."""
    Evenlane(middleware=[map]).handler("acme")(dict)
