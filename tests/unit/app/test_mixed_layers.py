"""Async and plain layers around one message: they share a thread, and the rules of threads and of cancellation hold."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from evenlane import Evenlane
from evenlane.testing import TestApp
from tests.support.app import Running
from tests.support.node.world import topic
from tests.support.until import until

TOPICS = {"acme": {"qps": 100, "burst": 50, "groups": 1, "max_attempts": 1}}
NEVER_RUN = "returned a coroutine that is never run"


async def around(message, call_next):
    return await call_next(message)


def around_plainly(message, call_next):
    return call_next(message)


def errors(t):
    return [str(each.error) for each in t.failed]


async def test_plain_layers_share_the_thread_of_their_message():
    """With as many messages as threads, a layer that waited for a second thread would wait for ever."""
    app, threads = Evenlane(middleware=[around, around_plainly, around]), []

    @app.middleware
    def note(message, call_next):
        threads.append(threading.get_ident())
        return call_next(message)

    app.middleware(around)

    @app.handler
    def handle(message):
        assert threading.get_ident() in threads

    async with TestApp(app, TOPICS, concurrency=2) as t:
        for _ in range(8):
            await t.put("acme")
        await t.run_until_idle()
        assert (8, []) == (len(t.handled), errors(t))


async def test_threads_that_hang_inside_async_middleware_end_the_node():
    """P11: as without middleware, so that later messages aren't failed because all threads are taken."""
    app, release, reasons = Evenlane(middleware=[around]), threading.Event(), []

    @app.handler
    def handle(message):
        release.wait(60)

    async with Running(app, "acme", on_stop=reasons.append) as running:
        running.topics["acme"] = topic(ack_wait=0.1, max_attempts=1)
        for _ in range(3):
            await running.put("acme")
        await until(lambda: reasons)
        assert "3 of 8 handler threads hang" in reasons[0]
        release.set()


async def test_async_handler_inside_plain_middleware_is_cancelled():
    """X11: its thread isn't hung, as it ends with the handler."""
    app, ended = Evenlane(middleware=[around_plainly]), []

    @app.handler
    async def handle(message):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(message.attempt)
            raise

    topics = {"acme": TOPICS["acme"] | {"ack_wait": 1, "max_attempts": 2}}
    async with TestApp(app, topics, concurrency=2) as t:
        for _ in range(2):
            await t.put("acme")
        await t.advance(60)
        assert [1, 1, 2, 2] == sorted(ended)
        assert 2 == len(t.dead_letters)


async def test_async_handler_that_sleeps_inside_plain_middleware_takes_no_real_time():
    app = Evenlane(middleware=[around_plainly])

    @app.handler
    async def handle(message):
        await asyncio.sleep(300)

    async with TestApp(app, {"acme": TOPICS["acme"] | {"ack_wait": 600}}) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert 1 == len(t.handled)


@pytest.mark.parametrize("middleware", [[], [around], [around_plainly]])
async def test_plain_handler_that_returns_a_coroutine_has_not_handled_its_message(middleware):
    app = Evenlane(middleware=middleware)

    async def work(message):
        raise AssertionError

    @app.handler
    def handle(message):
        return work(message)

    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert [] == t.handled
        [error] = errors(t)
        assert NEVER_RUN in error


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError()])
@pytest.mark.parametrize("layer", [around, around_plainly])
@pytest.mark.parametrize("is_async", [True, False])
async def test_error_that_could_end_the_loop_is_a_failed_attempt(layer, is_async, error):
    app = Evenlane(middleware=[layer])

    async def handle(message):
        raise error

    def handle_plainly(message):
        raise error

    app.handler(handle if is_async else handle_plainly)
    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        [dead] = t.dead_letters
        assert type(error).__name__ in dead.error or "StopIteration" in dead.error


async def test_middleware_that_limits_and_retries():
    """The last call decides: that of a call before was cancelled by the limit."""
    app, calls = Evenlane(), []

    @app.middleware
    async def retry(message, call_next):
        try:
            async with asyncio.timeout(1):
                await call_next(message)
        except TimeoutError:
            await call_next(message)

    @app.handler
    async def handle(message):
        calls.append(message.id)
        if len(calls) == 1:
            await asyncio.Event().wait()

    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert (1, []) == (len(t.handled), errors(t))


async def test_second_call_that_is_not_awaited():
    app = Evenlane()

    @app.middleware
    async def forget(message, call_next):
        await call_next(message)
        call_next(message).close()

    app.handler(lambda message: None)
    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert "did not await call_next(message)" in errors(t)[0]


async def test_plain_middleware_that_swallows_the_cancellation_settles_nothing():
    """X11: as for async middleware."""
    app = Evenlane()

    @app.middleware
    def swallow(message, call_next):
        with suppress(asyncio.CancelledError):
            call_next(message)

    @app.handler
    async def handle(message):
        raise asyncio.CancelledError

    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        assert "swallowed the CancelledError of its handler" in errors(t)[0]


async def test_call_after_the_end_of_the_handling_is_refused():
    app, late = Evenlane(), []

    @app.middleware
    async def keep(message, call_next):
        late.append(call_next)
        await call_next(message)

    app.handler(lambda message: None)
    async with TestApp(app, TOPICS) as t:
        await t.put("acme")
        await t.run_until_idle()
        [message] = t.handled
        with pytest.raises((RuntimeError, LookupError)):
            await late[0](message)
