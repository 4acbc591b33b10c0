"""Fault 19 on a real etcd: the last good topic stays in effect; X4: fast edits don't fall behind."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.until import until

pytestmark = pytest.mark.real

EDITS = 1_000
AT_ONCE = 50


class TopicEdits:
    """A leader, a node's topic cache, and an editor that writes specs into etcd."""

    def __init__(self, endpoint: str, env: str) -> None:
        self.clients = [EtcdCoordination([endpoint]) for _ in range(3)]
        self.key = f"/evenlane/{env}/topics/acme"
        self.controller = TopicController(self.clients[1], env, ClusterConfig(), "n1")
        self.topic_cache = TopicCache(self.clients[2], env)
        self.seen: list[float] = []  # the reported quotas of acme
        self.topic_cache.on_change.append(lambda _project, now: self.seen.append(now.topic.qps if now else 0.0))

    async def put(self, spec: bytes) -> int:
        return await self.clients[0].put(self.key, spec)

    @property
    def now(self):
        return self.topic_cache.get("acme")


@asynccontextmanager
async def cluster_on(endpoint, env):
    made = TopicEdits(endpoint, env)
    try:
        await made.topic_cache.start()
        await made.controller.start()
        yield made
    finally:
        await asyncio.gather(made.controller.close(), made.topic_cache.close())
        await asyncio.gather(*(client.close() for client in made.clients))


async def test_last_good_topic_survives_restart_of_all_processes(tmp_path):
    etcd = EtcdServer(tmp_path, fast=True)
    await etcd.start()
    try:
        async with cluster_on(etcd.endpoint, "online") as cluster:
            await cluster.put(b'{"qps": 100, "concurrency": 3}')
            good = await until(lambda: cluster.now)
            await cluster.put(b'{"qps": -5}')
            await until(lambda: cluster.controller.alarms)
        await etcd.stop()  # not `kill`: after that, etcd 3.5.1 may have lost one of its last transactions
        await etcd.start()
        async with cluster_on(etcd.endpoint, "online") as cluster:
            await until(lambda: cluster.controller.alarms)
            assert good == cluster.now
            assert "qps must be a number" in cluster.controller.alarms["acme"]
    finally:
        await etcd.stop()


async def test_thousand_edits_are_published_in_few_writes(etcd_server):
    """X4: nothing falls behind. How soon the last edit is in effect: `python -m benchmarks.topics`."""
    async with cluster_on(etcd_server.endpoint, "edits") as cluster:
        await cluster.put(b'{"qps": 1}')
        await until(lambda: cluster.now)
        cluster.seen.clear()
        for first in range(0, EDITS, AT_ONCE):
            await asyncio.gather(*(cluster.put(b'{"qps": %d}' % (first + n + 2)) for n in range(AT_ONCE)))
        last = await cluster.put(b'{"qps": 5000}')
        await until(lambda: cluster.now.topic.qps == 5_000)
        assert last == cluster.now.revision
        assert len(cluster.seen) == cluster.now.number <= EDITS / 4
        assert {} == cluster.controller.alarms
