"""Fault 19 on a real etcd: whatever is written, the last good topic is in force, and an alarm says what is wrong."""

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

SPEC_KEY = "/evenlane/online/topics/acme"
EDITS = 1_000
AT_ONCE = 50

BAD = {
    "not a number": (b'{"qps": NaN}', "qps must be a number from 0.01 to 1,000,000, not NaN"),
    "negative": (b'{"qps": -1}', "qps must be a number from 0.01 to 1,000,000, not -1"),
    "infinite": (b'{"qps": 1e400}', "qps must be a number from 0.01 to 1,000,000, not 1e400"),
    "true": (b'{"qps": true}', "qps must be a number from 0.01 to 1,000,000, not true"),
    "1 MB": (b'{"push": "' + b"x" * 1_000_000 + b'"}', "it is 1,000,012 bytes long: at most 65,536 are allowed"),
    "not JSON": (b"qps: 5", "it is not JSON"),
    "twice": (b'{"qps": 5, "qps": 6}', "qps is there twice"),
}  # fmt: skip


@pytest.fixture
async def etcd(tmp_path):
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    yield server
    await server.stop()


class TopicEdits:
    """A leader, a node's book, and somebody who writes into etcd."""

    def __init__(self, endpoint: str) -> None:
        self.clients = [EtcdCoordination([endpoint]) for _ in range(3)]
        self.hand = self.clients[0]
        self.controller = TopicController(self.clients[1], "online", ClusterConfig(), "n1")
        self.topic_cache = TopicCache(self.clients[2], "online")
        self.seen: list[float] = []  # what nodes were told of acme
        self.topic_cache.on_change.append(lambda _project, now: self.seen.append(now.topic.qps if now else 0.0))

    @property
    def now(self):
        return self.topic_cache.get("acme")


@asynccontextmanager
async def world(endpoint):
    """Every process anew."""
    made = TopicEdits(endpoint)
    try:
        await made.topic_cache.start()
        await made.controller.start()
        yield made
    finally:
        await asyncio.gather(made.controller.close(), made.topic_cache.close())
        await asyncio.gather(*(client.close() for client in made.clients))


async def test_a_bad_wish_raises_the_alarm_and_changes_nothing_until_it_is_mended(etcd):
    async with world(etcd.endpoint) as cluster:
        await cluster.hand.put(SPEC_KEY, b'{"qps": 100}')
        await until(lambda: cluster.now)
        for number, (raw, sentence) in enumerate(BAD.values()):
            before = cluster.now
            await cluster.hand.put(SPEC_KEY, raw)
            await until(
                lambda expected=sentence: cluster.controller.alarms.get("acme", "").startswith(expected), what=sentence
            )
            await cluster.hand.put(SPEC_KEY.replace("acme", "other"), b'{"qps": %d}' % (number + 1))
            await until(
                lambda wanted=number + 1: (found := cluster.topic_cache.get("other")) and found.topic.qps == wanted
            )
            assert (before, number + 1) == (cluster.now, cluster.controller.refused)
            await cluster.hand.put(SPEC_KEY, b'{"qps": %d}' % (200 + number))
            await until(lambda wanted=200 + number: cluster.now.topic.qps == wanted)
            assert {} == cluster.controller.alarms
        await cluster.hand.put(SPEC_KEY, b"rubbish")
        await until(lambda: cluster.controller.alarms)
        await cluster.hand.delete(SPEC_KEY)
        await until(lambda: cluster.now.deleted)
        assert {} == cluster.controller.alarms


async def test_the_last_good_one_survives_a_restart_of_every_process(etcd):
    async with world(etcd.endpoint) as cluster:
        await cluster.hand.put(SPEC_KEY, b'{"qps": 100, "concurrency": 3}')
        good = await until(lambda: cluster.now)
        await cluster.hand.put(SPEC_KEY, b'{"qps": -5}')
        await until(lambda: cluster.controller.alarms)
    await etcd.kill()
    await etcd.start()
    async with world(etcd.endpoint) as cluster:
        await until(lambda: cluster.controller.alarms)
        assert good == cluster.now
        assert "qps must be a number" in cluster.controller.alarms["acme"]


async def test_a_quota_edited_a_thousand_times_is_published_a_few_times_and_the_last_one_counts(etcd):
    """X4: nothing falls behind. How soon the last is in force: `python -m benchmarks.topics`."""
    async with world(etcd.endpoint) as cluster:
        await cluster.hand.put(SPEC_KEY, b'{"qps": 1}')
        await until(lambda: cluster.now)
        cluster.seen.clear()
        for first in range(0, EDITS, AT_ONCE):
            edits = (cluster.hand.put(SPEC_KEY, b'{"qps": %d}' % (first + n + 2)) for n in range(AT_ONCE))
            await asyncio.gather(*edits)
        last = await cluster.hand.put(SPEC_KEY, b'{"qps": 5000}')
        await until(lambda: cluster.now.topic.qps == 5_000)
        assert last == cluster.now.revision
        assert len(cluster.seen) == cluster.now.number <= EDITS / 4
        assert {} == cluster.controller.alarms
