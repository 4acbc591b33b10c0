"""A spec on a real etcd that is killed (X4, P4)."""

import asyncio

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Unavailable
from tests.support.until import until

ROOT = "/evenlane/online/"


async def put_spec(coordination, project, raw):
    return await coordination.put(ROOT + "topics/" + project, raw)


@pytest.mark.real
async def test_spec_reaches_topic_cache_after_crash_and_change_of_leader(tmp_path):
    """X4, P4: also after a crash of etcd and a change of leader. How soon: `python -m benchmarks.topics`."""
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    clients = [EtcdCoordination([server.endpoint]) for _ in range(3)]
    controllers = [TopicController(client, "online", ClusterConfig(), "n") for client in clients[:2]]
    topic_cache = TopicCache(clients[2], "online")
    try:
        await topic_cache.start()
        for each in controllers:
            await each.start()
        await until(lambda: any(each.leading.is_set() for each in controllers))
        await put_spec(clients[2], "a", b'{"qps": 100}')
        await topic_cache.wait_for("a", 60)
        leader = next(each for each in controllers if each.leading.is_set())
        await leader.close()
        await server.kill()
        await server.start()
        await until(lambda: _put_again(clients[2]))
        await until(lambda: topic_cache.get("a").topic.qps == 200)
        await put_spec(clients[2], "a", b'{"qps": 300}')
        await until(lambda: topic_cache.get("a").topic.qps == 300)
    finally:
        await asyncio.gather(topic_cache.close(), *(each.close() for each in controllers))
        await asyncio.gather(*(client.close() for client in clients))
        await server.stop()


async def _put_again(client):
    try:
        return await put_spec(client, "a", b'{"qps": 200}')
    except Unavailable:
        return 0
