"""`store: memory://`: an engine and a producer in one process, without a NATS server (E15)."""

import asyncio
import itertools
import os
import subprocess
import sys

import pytest

from evenlane import Producer
from evenlane.engine.admin.why.client import why
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.control.topics.client import TopicClient
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real

_fresh = itertools.count()


@pytest.fixture
async def settings(etcd_server):
    number = next(_fresh)
    made = Settings(
        store=(f"memory://t{number}",), nats=("nats://127.0.0.1:1",), etcd=(etcd_server.endpoint,), env=f"m{number}",
        partitions=2,
    )  # fmt: skip
    coordination = connections.etcd(made)
    cluster_config = await agree_cluster_config(coordination, made.env, {"partitions": 2})
    await TopicClient(coordination, made.env, cluster_config).change("acme", {"qps": 100})
    await coordination.close()
    return made


async def test_messages_are_handled_and_retried(settings):
    """The producer's argument `store` names the store."""
    handled = []

    async def handle(message):
        handled.append((message.body, message.attempt))
        if message.body == b"again" and message.attempt == 1:
            raise ValueError

    other = Settings(etcd=settings.etcd, env=settings.env)
    async with running_engine(settings, handle), Producer(settings=other, store=settings.store[0]) as producer:
        await producer.put("acme", b"once", priority="high")
        await producer.put("acme", b"later", delay=0.1)
        await producer.put("acme", b"again")
        await until(lambda: len(handled) == 4)
    assert {(b"once", 1), (b"later", 1), (b"again", 1), (b"again", 2)} == set(handled)


async def test_backlog_outlasts_node_and_is_settled_once(settings):
    handled = []
    async with Producer(settings=settings) as producer:
        await producer.put("acme", b"x")
    async with running_engine(settings, lambda message: handled.append(message.body)):
        await until(lambda: handled)
    async with running_engine(settings, lambda message: handled.append(message.body)):
        pass
    assert [b"x"] == handled, "settled once"


async def test_node_answers_requests_of_its_process(settings):
    begun, release = asyncio.Event(), asyncio.Event()

    async def handle(_message):
        begun.set()
        await release.wait()

    async with running_engine(settings, handle), Producer(settings=settings) as producer:
        await producer.put("acme", b"x")
        await begun.wait()
        try:
            assert 1 == (await why(settings, "acme"))["in_flight"]
        finally:
            release.set()


def test_adapter_is_imported_on_first_use_before_event_loop():
    program = (
        "import sys; from evenlane import Engine, Producer;"
        "Engine(print, store='memory://'); Producer(store='memory://'); print('nats' in sys.modules);"
        "url = 'nats://127.0.0.1:4222'; Engine(print, store=url); Producer(store=url); print('nats' in sys.modules)"
    )
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environ, text=True)
    assert "False\nTrue\n" == done.stdout
