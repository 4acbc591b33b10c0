"""The lifespan of an application: what it yields is the state of each message."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane import ConfigError, Evenlane, EvenlaneError, Put
from evenlane.engine.errors import ProducerClosed
from evenlane.testing import TestApp
from tests.support.app import Running, never
from tests.support.until import until


def application(lifespan, seen=None):
    app = Evenlane(lifespan=lifespan)

    @app.handler
    async def handle(message):
        if seen is not None:
            seen.append(message.state)

    return app


async def test_state_is_what_the_lifespan_yields():
    steps, seen = [], []

    @asynccontextmanager
    async def lifespan(app):
        steps.append("begins")
        yield {"database": 1}
        steps.append("ends")

    async with Running(application(lifespan, seen), "acme") as running:
        await running.put("acme")
        await running.all_gone()
        assert ["begins"] == steps
    assert [{"database": 1}] == seen
    assert ["begins", "ends"] == steps


async def test_generator_without_the_decorator_is_a_lifespan_too():
    seen = []

    async def lifespan(app):
        yield "state"

    async with Running(application(lifespan, seen), "acme") as running:
        await running.put("acme")
        await running.all_gone()
    assert ["state"] == seen


async def test_state_is_none_without_a_lifespan():
    app, seen = Evenlane(), []
    app.handler(lambda message: seen.append(message.state))
    async with Running(app, "acme") as running:
        await running.put("acme")
        await running.all_gone()
    assert [None] == seen


async def test_task_group_of_a_lifespan_ends_in_the_task_that_began_it():
    tasks = []

    async def lifespan(app):
        async with asyncio.TaskGroup() as group:
            tasks.append(group.create_task(asyncio.sleep(0)))
            yield
            tasks.append(asyncio.current_task())

    async with Running(application(lifespan), "acme"):
        pass
    assert 2 == len(tasks)


async def test_lifespan_that_raises_at_its_start():
    async def lifespan(app):
        raise KeyError("DATABASE")
        yield

    with pytest.raises(
        EvenlaneError, match=r"lifespan failed at its start: KeyError: 'DATABASE' \(test_lifespan.py:\d+"
    ):
        async with Running(application(lifespan), "acme"):
            pass


async def test_lifespan_that_exits():
    """It would end the event loop, without a word on the lifespan."""

    async def leave(app):
        raise SystemExit("no\nconfig")
        yield

    with pytest.raises(EvenlaneError, match=r"the lifespan .*leave failed at its start: SystemExit: no config \("):
        async with Running(application(leave), "acme"):
            pass


async def never_yields(app):
    if app is None:
        yield


async def yields_twice(app):
    yield
    yield


@pytest.mark.parametrize("lifespan", [never_yields, yields_twice])
async def test_lifespan_must_yield_once(lifespan):
    with pytest.raises(EvenlaneError, match=r"the lifespan .*yields.* failed at its .*: it must yield exactly once$"):
        async with Running(application(lifespan), "acme"):
            pass


async def test_lifespan_that_exits_at_its_end():
    async def leave(app):
        yield
        raise SystemExit(3)

    with pytest.raises(EvenlaneError, match=r"the lifespan .*leave failed at its end: SystemExit: 3"):
        async with Running(application(leave), "acme"):
            pass


async def test_lifespan_that_hangs_at_its_start():
    async def lifespan(app):
        await never()
        yield

    with pytest.raises(EvenlaneError, match=r"lifespan did not yield within 0.05 s \(start_timeout\)"):
        async with Running(application(lifespan), "acme", start_timeout_s=0.05):
            pass


async def test_lifespan_that_raises_at_its_end():
    async def lifespan(app):
        yield
        raise ValueError("still open")

    with pytest.raises(EvenlaneError, match="lifespan failed at its end: ValueError: still open"):
        async with Running(application(lifespan), "acme"):
            pass


async def test_lifespan_whose_background_task_fails_ends_the_application():
    """The process ends, rather than go on without what the lifespan has opened."""

    async def fail():
        raise RuntimeError("lost the database")

    async def lifespan(app):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    async with Running(application(lifespan), "acme") as running:
        await until(lambda: running.ended)
    [reason] = running.ended
    assert "lifespan ended while the application ran: RuntimeError: lost the database (test_lifespan.py:" in reason


@pytest.mark.parametrize(
    ("lifespan", "sentence"),
    [
        (3, "is not an async context manager"),
        (never, "the lifespan never is not an async context manager"),
        (asynccontextmanager(lambda: None), "must take one argument, the application"),
    ],
)
def test_lifespan_that_can_not_work(lifespan, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Evenlane(lifespan=lifespan)


async def test_handlers_put_further_messages():
    app, seen = Evenlane(), []

    @app.handler("acme")
    async def first(message):
        await app.producer.put("bolt", message.body + b"!")
        [receipt] = await app.producer.put_many([Put("bolt", b"many")])
        assert receipt.sequence

    @app.handler("bolt")
    async def second(message):
        seen.append(message.body)

    async with Running(app, "acme", "bolt") as running:
        await running.put("acme", b"a")
        await until(lambda: len(seen) == 2)
    assert {b"a!", b"many"} == set(seen)


async def test_producer_goes_on_when_another_node_of_the_application_ends():
    app = Evenlane()

    @app.handler("acme")
    async def handle(message):
        await app.producer.put("bolt", message.body)

    app.handler("bolt")(lambda message: None)
    async with Running(app, "acme", "bolt") as first:
        async with Running(app, "acme", "bolt") as second:
            await second.put("acme")
            await second.all_gone()
        await first.put("acme")
        await first.all_gone()
        assert [] == first.dead()
    with pytest.raises(ProducerClosed):
        await app.producer.put("acme", b"x")


async def test_plain_handlers_put_with_the_sync_producer():
    app, errors = Evenlane(), []

    @app.handler("acme")
    def handle(message):
        try:
            app.producer.put("bolt", b"x")
        except ConfigError as error:
            errors.append(str(error))
        assert app.sync_producer.put("bolt", b"1").sequence
        assert 2 == len(app.sync_producer.put_many([Put("bolt", b"2"), Put("bolt", b"3")]))

    @app.handler("bolt")
    async def rest(message):
        with pytest.raises(ConfigError, match=r"would block the event loop with this put: await app\.producer\.put"):
            app.sync_producer.put("bolt", b"x")

    async with TestApp(app, {"acme": {"qps": 100}, "bolt": {"qps": 100}}) as t:
        await t.put("acme")
        await t.advance(1)
        assert ([], 4) == (t.failed, len(t.handled))
    assert ["a plain handler can't await this put: use app.sync_producer, which waits for it"] == errors


async def test_producer_of_an_application_that_does_not_run():
    with pytest.raises(ProducerClosed, match="works while the application runs"):
        await Evenlane().producer.put("acme", b"x")
