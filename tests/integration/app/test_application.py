"""Applications on real servers: life cycle, typed bodies, further messages, and nodes whose handlers differ."""

import asyncio
from dataclasses import replace

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from evenlane import Engine, Evenlane, EvenlaneError, Message, Producer
from evenlane.engine.admin.plan import view
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real


class Order(msgspec.Struct):
    id: int


async def test_application_handles_typed_messages_and_puts_further_ones(settings):
    """The lifespan begins before the first message, and ends after the last one."""
    steps, mails = [], []

    async def lifespan(app):
        steps.append("begins")
        yield "state"
        steps.append("ends")

    app = Evenlane(lifespan=lifespan)

    @app.handler("orders-*")
    async def bill(message: Message[Order]):
        steps.append(message.data.id)
        await app.producer.put("mail", message.state.encode())

    @app.handler("mail")
    def send(message):
        mails.append(message.body)

    async with running_engine(settings, app), Producer(settings=settings) as producer:
        await producer.put("orders-1", b'{"id": 7}')
        await until(lambda: mails)
    assert ["begins", 7, "ends"] == steps
    assert [b"state"] == mails


async def test_lifespan_that_fails_at_its_start_ends_the_node_before_it_joins(settings):
    async def lifespan(app):
        raise OSError("no database")
        yield

    app = Evenlane(lifespan=lifespan)
    app.handler(lambda message: None)
    async with Engine(app, settings=settings) as made:
        with pytest.raises(EvenlaneError, match="lifespan failed at its start: OSError: no database"):
            await made.run()
        assert [] == (await view.read(settings)).document["nodes"]


async def test_node_that_is_stopped_during_a_long_start_ends(settings):
    ended = []

    async def lifespan(app):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        yield

    app = Evenlane(lifespan=lifespan)
    app.handler(lambda message: None)
    async with Engine(app, settings=settings) as made:
        running = asyncio.create_task(made.run())
        await asyncio.sleep(0)
        made.stop()
        assert await running
    assert [True] == ended


async def test_lifespan_that_ends_by_itself_ends_the_node_with_its_error(settings):
    fails = asyncio.Event()

    async def fail():
        await fails.wait()
        raise RuntimeError("lost the database")

    async def lifespan(app):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield

    app = Evenlane(lifespan=lifespan)
    app.handler(lambda message: None)
    ready = asyncio.Event()
    async with Engine(app, settings=settings, on_ready=lambda *_: ready.set()) as made:
        running = asyncio.create_task(made.run())
        await ready.wait()
        fails.set()
        with pytest.raises(
            EvenlaneError, match=r"stops: the lifespan .* ended while the application ran: RuntimeError"
        ):
            await running


async def test_nodes_whose_handlers_differ_are_named(settings):
    """In a warning of the leader, in `plan show`, and on the page."""
    first, second = Evenlane(), Evenlane()

    @first.handler("orders-*")
    async def bill(message): ...

    @second.handler("mail")
    async def send(message): ...

    with capture_logs() as logs:
        a, b = (replace(settings, node=name, http_port=0) for name in "ab")
        async with running_engine(a, first) as node, running_engine(b, second), aiohttp.ClientSession() as session:
            document = (await view.read(settings)).document
            differ = document["handlers_differ"]
            assert differ.startswith("the nodes' handlers differ: node a by orders-* -> ")
            assert "; node b by mail -> " in differ
            assert {"a", "b"} == {node["id"] for node in document["nodes"]}
            await until(lambda: [line for line in logs if line["event"] == "the nodes' handlers differ"])
            async with session.get(f"{node.http.address}/api/overview") as answer:
                assert differ in (await answer.json())["notes"]
