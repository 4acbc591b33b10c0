"""Projects that appear without a topic, on real servers: put by a producer, or a plain client (K6, P8, fault 21)."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import nats
import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.connections import etcd as connect
from evenlane.engine.control.templates.provisioner import TopicProvisioner, Tuning
from evenlane.engine.control.topics.history import author_of
from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import UnknownProject
from evenlane.engine.node.services import topic_provisioner as unknown_module
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.engine.runtime.engine import Engine
from evenlane.ring.hashing import partition_of
from tests.support.until import until

pytestmark = pytest.mark.real
PARTITIONS = 4
ROOT = "/evenlane/online/"


@pytest.fixture
async def servers(tmp_path):
    async with Servers(tmp_path, fast=True) as both:
        yield both


@pytest.fixture
def settings(servers):
    return Settings(
        nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,), partitions=PARTITIONS, node="a", http_port=None
    )


@pytest.fixture
async def etcd(settings):
    client = connect(settings)
    await agree_cluster_config(client, "online", {"partitions": PARTITIONS})
    yield client
    await client.close()


async def template(etcd, limit=1_000):
    value = {"match": "dev-*", "topic": {"qps": 1_000}, "limit": limit}
    await etcd.put(f"{ROOT}templates/dev", json.dumps(value).encode())


@asynccontextmanager
async def node(settings, handled):
    async def note(message):
        handled.append((message.project, bytes(message.body)))

    ready = asyncio.Event()
    async with Engine(note, settings=settings, on_ready=lambda *_: ready.set()) as engine:
        running = asyncio.create_task(engine.run())
        try:
            await asyncio.wait_for(ready.wait(), 30)
            yield engine
        finally:
            engine.stop()
            await running


async def plain(servers, project, body):
    """A client that knows the formulas, and nothing else."""
    client = await nats.connect(servers.nats.url)
    partition = partition_of(project, 0, 1, PARTITIONS)
    await client.jetstream().publish(f"lanes.online.{partition}.{project}.0.mid", body)
    await client.close()


async def made_by(etcd, project):
    spec, written_by = await etcd.get(f"{ROOT}topics/{project}"), await etcd.get(f"{ROOT}authors/{project}")
    author = None if spec is None else author_of(written_by, spec.mod_revision)
    return None if author is None else (author.by, author.via)


async def test_a_put_goes_through(settings, etcd):
    """Before any node has run, one by one and many at once."""
    async with Producer(settings=settings) as producer:
        with pytest.raises(UnknownProject):
            await producer.put("dev-1", b"x")
        assert isinstance((await producer.put_many([Put("dev-1", b"x")]))[0], UnknownProject)
        await template(etcd)

        async def goes_through():
            try:
                return await producer.put("dev-1", b"x")
            except UnknownProject:
                return None

        assert isinstance(await until(goes_through), Receipt)
        outcomes = await producer.put_many([Put(name, b"x") for name in ("dev-2", "acme", "dev-3", "dev-2", "dev-1")])
        kinds = [type(each) for each in outcomes]
        assert [Receipt, UnknownProject, Receipt, Receipt, Receipt] == kinds
    assert ("template dev", "a put") == await made_by(etcd, "dev-2")
    assert await made_by(etcd, "acme") is None


async def test_a_put_beside_nodes_is_handled(settings, servers, etcd):
    await template(etcd)
    handled = []
    async with node(settings, handled), Producer(settings=settings) as producer:
        await producer.put("dev-1", b"hello")
        await until(lambda: handled)
        assert [("dev-1", b"hello")] == handled


async def test_a_message_of_a_plain_client_is_handled(settings, servers, etcd, monkeypatch):
    """Whether the template is there before it or comes later; nothing happens without one."""
    monkeypatch.setattr(unknown_module, "_AGAIN_S", 0.1)
    handled = []
    async with node(settings, handled) as engine:
        await plain(servers, "dev-1", b"first")
        await plain(servers, "acme", b"unknown")
        await until(lambda: engine.node.backlog == 2)
        assert await made_by(etcd, "dev-1") is None
        await template(etcd)
        await until(lambda: len(handled) == 1)
        await plain(servers, "dev-2", b"second")
        await until(lambda: len(handled) == 2)
        assert engine.node.backlog == 1
    assert [("dev-1", b"first"), ("dev-2", b"second")] == handled
    assert ("template dev", "a message") == await made_by(etcd, "dev-1")
    assert await made_by(etcd, "acme") is None


async def test_random_names_do_not_fill_etcd(settings, etcd):
    """Fault 21: two producers, and names without end."""
    await template(etcd, limit=20)

    async def puts(number):
        async with Producer(settings=settings) as producer:
            return await producer.put_many([Put(f"dev-{number}-{each}", b"x") for each in range(100)])

    outcomes = [each for all_ in await asyncio.gather(puts(1), puts(2)) for each in all_]
    stored = [each for each in outcomes if isinstance(each, Receipt)]
    refused = {str(each).partition("template")[2] for each in outcomes if isinstance(each, UnknownProject)}
    assert (20, 180) == (len(stored), len(outcomes) - len(stored))
    assert all("makes none for it, as 20 that it made are there, its limit" in each for each in refused)
    assert 20 == len((await etcd.list(f"{ROOT}topics/")).items)


async def test_a_plain_clients_message_waits_until_there_is_room(settings, servers, etcd, monkeypatch):
    monkeypatch.setattr(unknown_module, "_AGAIN_S", 0.1)
    soon = partial(TopicProvisioner, tuning=Tuning(full_s=0.1))
    monkeypatch.setattr("evenlane.engine.runtime.topics.TopicProvisioner", soon)
    await template(etcd, limit=1)
    handled = []
    async with node(settings, handled) as engine:
        await plain(servers, "dev-1", b"1")
        await until(lambda: len(handled) == 1)
        await plain(servers, "dev-2", b"2")
        await until(lambda: engine.node.backlog == 1)
        await template(etcd, limit=2)
        await until(lambda: len(handled) == 2)


async def test_a_topic_that_went_is_made_again_when_messages_come(settings, servers, etcd, monkeypatch):
    """Its queues are known to the node, which sees no new one."""
    monkeypatch.setattr(unknown_module, "_AGAIN_S", 0.1)
    await template(etcd)
    handled = []
    async with node(replace(settings, duplicate_window=1.0), handled) as engine:
        await plain(servers, "dev-1", b"1")
        await until(lambda: len(handled) == 1)
        await etcd.delete(f"{ROOT}topics/dev-1")
        await until(lambda: [None] == [queue.rules.topic for queue in engine.node.queues.of("dev-1")], 30)
        assert await made_by(etcd, "dev-1") is None  # nothing waits: it isn't made for that
        await plain(servers, "dev-1", b"2")
        await until(lambda: len(handled) == 2)
