"""The cache of accepted topics on a real etcd that is restored from a copy (F2)."""

import shutil

import pytest

from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.quota.topics.topic import accept, complete, encode, parse_spec
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.topic_cases import LIMITS
from tests.support.until import until

PREFIX = "/evenlane/online/accepted/"


def accepted(qps, revision=1):
    return accept(complete(parse_spec(b'{"qps": %g}' % qps), LIMITS), revision, None)


def reported(topic_cache):
    """The lost topics, as the cache reports them."""
    lost = []
    topic_cache.on_lost = lambda now: lost.append(now.all())
    return lost


async def put(coordination, project, qps):
    await coordination.put(PREFIX + project, encode(accepted(qps)))


@pytest.mark.real
async def test_lost_topics_are_noticed_though_revision_is_higher(tmp_path):
    """F2: etcd is restored from a copy, and other clients write to it, before the watch is back."""
    server = EtcdServer(tmp_path / "etcd", fast=True)
    server.data_dir.mkdir()
    await server.start()
    store, backup = server.data_dir / server.kind, tmp_path / "backup"
    client = EtcdCoordination([server.endpoint])
    topic_cache = TopicCache(client, "online")
    try:
        await put(client, "a", 1)
        await server.stop()
        shutil.copytree(store, backup)
        await server.start()
        await topic_cache.start()
        await put(client, "a", 5)
        await put(client, "b", 2)
        await until(lambda: topic_cache.get("b"))
        newest = (await client.get(PREFIX + "b")).mod_revision
        lost = reported(topic_cache)
        await server.kill()
        shutil.rmtree(store)
        shutil.copytree(backup, store)
        await write_elsewhere(server.data_dir)
        await server.start()
        await until(lambda: lost)
        assert (await client.list(PREFIX)).revision > newest
        assert ([{"b"}], accepted(1), accepted(2)) == (lost, topic_cache.get("a"), topic_cache.get("b"))
    finally:
        await topic_cache.close()
        await client.close()
        await server.stop()


async def write_elsewhere(data_dir):
    """Write to etcd on another port, where nothing watches."""
    server = EtcdServer(data_dir, fast=True)
    await server.start()
    client = EtcdCoordination([server.endpoint])
    for _ in range(20):
        await client.put("/other", b"")
    await client.close()
    await server.stop()
