"""`store: memory://`: an engine and a producer in one process, without a NATS server (E15)."""

import asyncio
import itertools
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from evenlane import Engine, Producer
from evenlane.engine.admin.why.client import why
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from tests.support.until import until

pytestmark = pytest.mark.real

_fresh = itertools.count()


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory):
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def settings(etcd_server):
    number = next(_fresh)
    made = Settings(
        store=(f"memory://t{number}",), nats=("nats://127.0.0.1:1",), etcd=(etcd_server.endpoint,), env=f"t{number}",
        partitions=2,
    )  # fmt: skip
    coordination = connections.etcd(made)
    cluster_config = await agree_cluster_config(coordination, made.env, {"partitions": 2})
    await TopicClient(coordination, made.env, cluster_config).change("acme", {"qps": 100})
    await coordination.close()
    return made


@asynccontextmanager
async def engine(settings, handle):
    ready = asyncio.Event()
    async with Engine(handle, settings=settings, on_ready=lambda *_: ready.set()) as made:
        running = asyncio.create_task(made.run())
        try:
            await asyncio.wait_for(ready.wait(), 30)
            yield made
        finally:
            made.stop()
            assert await running, "a node that leaves something"


async def test_what_is_put_is_handled_retried_and_counted(settings):
    handled = []

    async def handle(message):
        handled.append((message.body, message.attempt))
        if message.body == b"again" and message.attempt == 1:
            raise ValueError

    async with engine(settings, handle), Producer(settings=settings) as producer:
        await producer.put("acme", b"once", priority="high")
        await producer.put("acme", b"later", delay=0.1)
        await producer.put("acme", b"again")
        await until(lambda: len(handled) == 4)
    assert {(b"once", 1), (b"later", 1), (b"again", 1), (b"again", 2)} == set(handled)


async def test_what_waits_outlasts_the_node_but_not_the_process(settings):
    handled = []
    async with Producer(settings=settings) as producer:
        await producer.put("acme", b"x")
    async with engine(settings, lambda message: handled.append(message.body)):
        await until(lambda: handled)
    async with engine(settings, lambda message: handled.append(message.body)):
        pass
    assert [b"x"] == handled, "settled once"


async def test_a_node_answers_what_is_asked_in_its_process(settings):
    begun, going_on = asyncio.Event(), asyncio.Event()

    async def handle(_message):
        begun.set()
        await going_on.wait()

    async with engine(settings, handle), Producer(settings=settings) as producer:
        await producer.put("acme", b"x")
        await begun.wait()
        try:
            assert 1 == (await why(settings, "acme"))["in_flight"]
        finally:
            going_on.set()


async def test_a_text_chooses_the_store_of_a_producer(settings):
    handled = []
    async with (
        engine(settings, lambda message: handled.append(message.body)),
        Producer(settings=Settings(etcd=settings.etcd, env=settings.env), store=settings.store[0]) as producer,
    ):
        await producer.put("acme", b"x")
        await until(lambda: handled)


@pytest.mark.parametrize(("url", "imported"), [("memory://", False), ("nats://127.0.0.1:4222", True)])
def test_an_adapter_is_imported_with_the_first_that_needs_it_and_before_any_loop_runs(url, imported):
    program = (
        "import sys; from evenlane import Engine, Producer;"
        f"Engine(print, store={url!r}); Producer(store={url!r}); print('nats' in sys.modules)"
    )
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environ, text=True)
    assert f"{imported}\n" == done.stdout
