"""`max_backlog` on real servers: several producers, with a node that reports backlogs and without (K6, P8)."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.errors import BacklogFull
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.node.services.backlog_reporter import BacklogReporter
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import ProducerTuning
from tests.support.streams import all_stored
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real
PARTITIONS = 4


@pytest.fixture
def settings(nats_server, etcd_server, env) -> Settings:
    return Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=PARTITIONS)


@asynccontextmanager
async def topics(settings, **specs):
    coordination = connections.etcd(settings)
    cluster_config = await agree_cluster_config(coordination, settings.env, {"partitions": PARTITIONS})
    await put_specs(coordination, settings.env, cluster_config, specs)
    topic_cache = TopicCache(coordination, settings.env)
    await topic_cache.start()
    try:
        yield cluster_config, topic_cache
    finally:
        await topic_cache.close()
        await coordination.close()


@asynccontextmanager
async def node(settings, cluster_config, topic_cache, handle):
    """A node as the engine builds it, but only with its store and its reports of backlogs."""
    store = connections.store(settings, "node", feeds=True)
    await store.open()
    await store.prepare([LaneId(kind, n) for kind in ("lanes", "later") for n in range(PARTITIONS)])

    def topic_of(project):
        found = topic_cache.get(project)
        return found.topic if found else None

    made = Node(store, cluster_config, RouteTable.of(handle), topic_of, node_id="node.1")
    reporter = BacklogReporter(connections.bus(settings, "counts"), settings.env, made, topic_cache)
    await made.start()
    await made.take_over(range(PARTITIONS), 1)
    await reporter.open()
    try:
        yield made
    finally:
        await reporter.close()
        await made.stop(5)
        await store.close()


async def put_until_full(producer, most):
    """Put one message after another until one is refused; returns the number stored."""
    stored = 0
    while stored < most:
        try:
            await producer.put("acme", b"x")
        except BacklogFull:
            return stored
        stored += 1
    raise AssertionError(f"{most} were taken, and none refused")


@pytest.mark.parametrize("with_node", [False, True], ids=["by the store", "by a node"])
async def test_two_producers_exceed_limit_by_puts_between_two_counts(settings, with_node):
    """K6: the store is asked, or a node reports, once a second. Each producer puts 150/s: 1.5 s of that are 225
    messages; as many again are allowed for a slow machine.
    """

    async def handle(_message):
        await asyncio.Event().wait()

    async with topics(settings, acme='{"qps": 150, "max_backlog": 400}') as parts, AsyncExitStack() as open_node:
        if with_node:
            await open_node.enter_async_context(node(settings, *parts, handle))
        producers = [Producer(settings=settings, admission=1.0) for _ in range(2)]
        async with producers[0], producers[1]:
            counts = await asyncio.gather(*(put_until_full(each, 2_000) for each in producers))
    assert sum(counts) == len(await all_stored(settings.nats[0], settings.env, PARTITIONS))
    assert 400 <= sum(counts) <= 400 + 2 * 225


async def test_puts_are_taken_again_once_node_reports_handled_messages(settings):
    """K6: running, waiting and delayed messages count, handled ones don't. The store is asked only at the beginning."""
    gate = asyncio.Event()

    async def handle(_message):
        await gate.wait()

    producer = Producer(settings=settings)
    producer.tuning = ProducerTuning(counted_s=30.0)
    async with (
        topics(settings, acme='{"qps": 100000, "max_backlog": 300}') as (cluster_config, topic_cache),
        node(settings, cluster_config, topic_cache, handle),
        producer,
    ):
        await producer.put_many(Put("acme", b"x", delay=86_400.0) for _ in range(100))
        stored = 100

        async def is_full():
            """The reports of an owner that still reads its lanes may count some messages twice for a moment."""
            nonlocal stored
            stored += await put_until_full(producer, 1_000)
            return stored == 300

        await until(is_full)

        async def is_refused():
            with pytest.raises(BacklogFull) as refusal:
                await producer.put("acme", b"x")
            return "300 messages wait there, and its max_backlog is 300" in str(refusal.value)

        await until(is_refused)
        gate.set()

        async def is_taken():
            try:
                return await producer.put("acme", b"x")
            except BacklogFull:
                return None

        await until(is_taken, what="a report that messages are handled")
