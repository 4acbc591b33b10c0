"""Projects without a topic, on real servers: put by a producer, or by a plain client (K6, P8, fault 21)."""

import json
from dataclasses import replace
from functools import partial

import nats
import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.connections import etcd as connect
from evenlane.engine.control.templates.provisioner import ProvisionerTuning, TopicProvisioner
from evenlane.engine.control.topics.history import author_of
from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import UnknownProject
from evenlane.engine.node.services import unknown_project_watcher
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real
PARTITIONS = 4


@pytest.fixture
def settings(nats_server, etcd_server, env):
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=PARTITIONS, node="a", http_port=None
    )


@pytest.fixture
async def etcd(settings):
    client = connect(settings)
    await agree_cluster_config(client, settings.env, {"partitions": PARTITIONS})
    yield client
    await client.close()


@pytest.fixture
def quick(monkeypatch):
    """Nodes look again for a topic, and a template for room, after 0.1 s."""
    monkeypatch.setattr(unknown_project_watcher, "_AGAIN_S", 0.1)
    provisioner = partial(TopicProvisioner, tuning=ProvisionerTuning(full_s=0.1))
    monkeypatch.setattr("evenlane.engine.runtime.topics.TopicProvisioner", provisioner)


async def put_template(etcd, settings, limit=1_000):
    value = {"match": "dev-*", "topic": {"qps": 1_000}, "limit": limit}
    await etcd.put(names.key(settings.env, "templates", "dev"), json.dumps(value).encode())


def node(settings, handled):
    async def note(message):
        handled.append((message.project, bytes(message.body)))

    return running_engine(settings, note)


async def put_plainly(settings, project, body):
    """Put as a client that knows only the formulas."""
    client = await nats.connect(settings.nats[0])
    partition = partition_of(project, 0, 1, PARTITIONS, "hashed")
    await client.jetstream().publish(f"lanes.{settings.env}.{partition}.{project}.0.mid", body)
    await client.close()


async def author(etcd, settings, project):
    keys = [names.key(settings.env, kind, project) for kind in ("topics", "authors")]
    spec, written_by = [await etcd.get(key) for key in keys]
    found = None if spec is None else author_of(written_by, spec.mod_revision)
    return None if found is None else (found.by, found.via)


async def test_put_creates_topic_from_template_without_nodes(settings, etcd):
    """One put, and many at once."""
    async with Producer(settings=settings) as producer:
        with pytest.raises(UnknownProject):
            await producer.put("dev-1", b"x")
        assert isinstance((await producer.put_many([Put("dev-1", b"x")]))[0], UnknownProject)
        await put_template(etcd, settings)

        async def succeeds():
            try:
                return await producer.put("dev-1", b"x")
            except UnknownProject:
                return None

        assert isinstance(await until(succeeds), Receipt)
        outcomes = await producer.put_many([Put(name, b"x") for name in ("dev-2", "acme", "dev-3", "dev-2", "dev-1")])
        kinds = [type(each) for each in outcomes]
        assert [Receipt, UnknownProject, Receipt, Receipt, Receipt] == kinds
    assert ("template dev", "a put") == await author(etcd, settings, "dev-2")
    assert await author(etcd, settings, "acme") is None


@pytest.mark.usefixtures("quick")
async def test_messages_of_new_projects_are_handled(settings, etcd):
    """A plain client's before and after the template is set, and a producer's; without a template nothing happens."""
    handled = []
    async with node(settings, handled) as engine:
        await put_plainly(settings, "dev-1", b"first")
        await put_plainly(settings, "acme", b"unknown")
        await until(lambda: engine.node.backlog == 2)
        assert await author(etcd, settings, "dev-1") is None
        await put_template(etcd, settings)
        await until(lambda: len(handled) == 1)
        await put_plainly(settings, "dev-2", b"second")
        await until(lambda: len(handled) == 2)
        async with Producer(settings=settings) as producer:
            await producer.put("dev-3", b"third")
            await until(lambda: len(handled) == 3)
        await until(lambda: engine.node.backlog == 1)
    assert [("dev-1", b"first"), ("dev-2", b"second"), ("dev-3", b"third")] == handled
    assert ("template dev", "a message") == await author(etcd, settings, "dev-1")
    assert await author(etcd, settings, "acme") is None


@pytest.mark.usefixtures("quick")
async def test_message_waits_until_template_has_room_or_topic_is_created_again(settings, etcd):
    """A deleted topic is created again by the next message, though the node knows its queues already."""
    await put_template(etcd, settings, limit=1)
    handled = []
    async with node(replace(settings, duplicate_window=1.0), handled) as engine:
        await put_plainly(settings, "dev-1", b"1")
        await until(lambda: len(handled) == 1)
        await put_plainly(settings, "dev-2", b"2")
        await until(lambda: engine.node.backlog == 1)
        await put_template(etcd, settings, limit=10)
        await until(lambda: len(handled) == 2)
        await etcd.delete(names.key(settings.env, "topics", "dev-1"))
        await until(lambda: [None] == [queue.rules.topic for queue in engine.node.queues.of_project("dev-1")])
        assert await author(etcd, settings, "dev-1") is None, "no message waits"
        await put_plainly(settings, "dev-1", b"3")
        await until(lambda: len(handled) == 3)
