"""`max_backlog` with real servers: several producers, with a node that tells them what waits and without (K6, P8)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.connections import etcd
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import BacklogFull
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.node.services.backlog_reporter import BacklogReporter
from evenlane.engine.producer.backlog_estimate import USABLE_S
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import DEFAULT, Tuning
from evenlane.engine.runtime.embedded.pair import Servers
from tests.support.streams import all_stored
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real
PARTITIONS = 4


@pytest.fixture
async def servers(tmp_path):
    async with Servers(tmp_path, fast=True) as both:
        yield both


def settings_of(servers) -> Settings:
    return Settings(nats=(servers.nats.url,), etcd=(servers.etcd.endpoint,), partitions=PARTITIONS)


@asynccontextmanager
async def topics(servers, **specs):
    coordination = etcd(settings_of(servers))
    cluster_config = await agree_cluster_config(coordination, "online", {"partitions": PARTITIONS})
    await put_specs(coordination, "online", cluster_config, specs)
    topic_cache = TopicCache(coordination, "online")
    await topic_cache.start()
    try:
        yield cluster_config, topic_cache
    finally:
        await topic_cache.close()
        await coordination.close()


@asynccontextmanager
async def node(servers, cluster_config, topic_cache, handle):
    """A node, as the engine puts it together, with nothing but its store and its counts."""
    settings = settings_of(servers)
    store = connections.store(settings, "node", feeds=True)
    await store.open()
    await store.prepare([LaneId(kind, n) for kind in ("lanes", "later") for n in range(PARTITIONS)])

    def topic_of(project):
        found = topic_cache.get(project)
        return found.topic if found else None

    made = Node(store, cluster_config, Handler.of(handle), topic_of, node_id="node.1")
    counting = BacklogReporter(connections.bus(settings, "counts"), "online", made, topic_cache)
    await made.start()
    await made.take_over(range(PARTITIONS), 1)
    await counting.open()
    try:
        yield made
    finally:
        await counting.close()
        await made.stop(5)
        await store.close()


def by_nodes(backlog) -> bool:
    """Whether nodes have told of all of it."""
    return backlog.fresh_until > backlog.usable_until - (USABLE_S - DEFAULT.counted_s)


async def put_until_full(producer, most):
    """Put one after the other until one is refused; how many were stored."""
    stored = 0
    while stored < most:
        try:
            await producer.put("acme", b"x")
        except BacklogFull:
            return stored
        stored += 1
    raise AssertionError(f"{most} were taken, and none refused")


async def test_without_any_node_two_producers_overshoot_by_what_the_other_puts_between_two_counts(servers):
    """K6: the store is asked once a second. Each puts 150/s: 1.5 s of that are 225 messages too many at the most, and
    as much again is left to a slow machine.
    """
    async with topics(servers, acme='{"qps": 150, "max_backlog": 400}'):
        producers = [Producer(settings=settings_of(servers), admission=1.0) for _ in range(2)]
        async with producers[0], producers[1]:
            counts = await asyncio.gather(*(put_until_full(each, 2_000) for each in producers))
    stored = await all_stored(servers.nats.url, "online", PARTITIONS)
    assert sum(counts) == len(stored)
    assert 400 <= len(stored) <= 400 + 2 * 225


async def test_with_a_node_two_producers_overshoot_by_what_the_other_puts_between_two_reports(servers):
    """K6: the same bound, with a node that tells it each second."""

    async def handle(_message):
        await asyncio.Event().wait()

    async with (
        topics(servers, acme='{"qps": 150, "max_backlog": 400}') as (cluster_config, topic_cache),
        node(servers, cluster_config, topic_cache, handle),
    ):
        producers = [Producer(settings=settings_of(servers), admission=1.0) for _ in range(2)]
        async with producers[0], producers[1]:
            counts = await asyncio.gather(*(put_until_full(each, 2_000) for each in producers))
    assert 400 <= sum(counts) <= 400 + 2 * 225


async def test_without_any_node_one_producer_puts_exactly_as_many_as_may_wait(servers):
    """K6, P8."""
    async with (
        topics(servers, acme='{"qps": 1000, "max_backlog": 1000}'),
        Producer(settings=settings_of(servers)) as producer,
    ):
        outcomes = await producer.put_many(Put("acme", b"x", delay=3_600.0 * (n % 3)) for n in range(5_000))
        assert {Receipt, BacklogFull} == set(map(type, outcomes))
    assert 1_000 == len(await all_stored(servers.nats.url, "online", PARTITIONS))


async def test_a_node_tells_what_waits_and_puts_are_taken_again_when_it_has_handled_some(servers):
    """K6: what runs, what waits and what is delayed is in the count, what is handled is not."""
    gate = asyncio.Event()

    async def handle(_message):
        await gate.wait()

    async with (
        topics(servers, acme='{"qps": 100000, "max_backlog": 300}') as (cluster_config, topic_cache),
        node(servers, cluster_config, topic_cache, handle),
        Producer(settings=settings_of(servers)) as producer,
    ):
        await producer.put_many(Put("acme", b"x", delay=86_400.0) for _ in range(100))
        at_first = await put_until_full(producer, 1_000)
        backlog = producer._pipeline._limits[0]._backlogs["acme"]
        parts = backlog._parts.values()
        await until(lambda: all(part.lane.count == part.later.count == 0 for part in parts), what="reports")
        await until(lambda: by_nodes(backlog), what="all parts to be told by the node")
        # (what an owner reports while it reads its lanes may count a few twice for a moment)
        assert 200 == at_first + await put_until_full(producer, 1_000)
        await until(lambda: 300 == backlog.known, what="reports of the last ones")
        with pytest.raises(BacklogFull, match="300 messages wait there, and its max_backlog is 300"):
            await producer.put("acme", b"x")
        gate.set()
        await until(lambda: backlog.known == 100, what="the node to tell that 200 are handled")
        assert isinstance(await producer.put("acme", b"x"), Receipt)


async def test_a_node_that_is_gone_leaves_the_limit_to_the_store(servers):
    """Its last word isn't believed for longer than 5 s (here: 2)."""
    impatient = Producer(settings=settings_of(servers))
    impatient.tuning = Tuning(reported_within_s=2.0)
    gate = asyncio.Event()

    async def handle(_message):
        await gate.wait()

    async with (
        topics(servers, acme='{"qps": 100000, "max_backlog": 50}') as (cluster_config, topic_cache),
        impatient as producer,
    ):
        async with node(servers, cluster_config, topic_cache, handle):
            assert 50 == await put_until_full(producer, 1_000)
            await until(lambda: by_nodes(producer._pipeline._limits[0]._backlogs["acme"]), what="the node to tell it")
            gate.set()
        await purged(servers)

        async def taken():
            try:
                return await producer.put("acme", b"x")
            except BacklogFull:
                return None

        await until(taken, 15, "a put that is taken again")
        assert 49 == await put_until_full(producer, 1_000)


async def purged(servers):
    """All lanes are empty."""
    store = connections.store(settings_of(servers), "test")
    await store.open()
    for number in range(PARTITIONS):
        state = await store.state(LaneId("lanes", number))
        await store.purge(LaneId("lanes", number), state.last + 1)
    await store.close()
