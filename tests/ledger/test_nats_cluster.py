"""Tests of three nats-servers with three replicas: any of them dies, is stopped and comes back, and streams move."""

import asyncio
import logging
from random import Random

import pytest

from evenlane.engine.admin.streams.migrate import migrate, open_replication
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from tests.ledger.cluster import ProcessCluster
from tests.ledger.nats_trio import NatsTrio
from tests.ledger.promises import check_owner_keys, never_handled
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))]
PARTITIONS = 4
TTL_S = 6


@pytest.fixture
async def servers(tmp_path):
    servers = NatsTrio(tmp_path)
    await servers.start()
    yield servers
    await servers.stop()


async def complete(cluster: ProcessCluster) -> bool:
    """Whether each stream is on all of its servers."""
    async with open_replication(cluster.settings) as replication:
        return all(each.is_complete for each in await replication.list_streams())


def check(cluster: ProcessCluster) -> None:
    assert set() == never_handled(cluster.acknowledged, cluster.entries())
    check_owner_keys(cluster.history)


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_server_dies_and_comes_back_under_load(tmp_path, servers, seed):
    """L, V, P11: kill -9 and SIGTERM in any order, the leaders of streams included. Nothing acknowledged is lost, and
    after each fault messages of all partitions are handled again.
    """
    chance = Random(seed)
    settings = {"nats": servers.nats.url, "replicas": 3, "partitions": PARTITIONS, "lease_ttl": TTL_S}
    async with ProcessCluster(tmp_path, servers=servers, **settings) as cluster:
        await cluster.serve("a", "b")
        async with cluster.load() as load:
            await load.reaches_all()
            for server in chance.sample(servers.nats.servers, 3):
                how = chance.choice([server.kill, server.stop])
                await how()
                await load.reaches_all()
                await server.start()
                await until(lambda: complete(cluster), 90, "all replicas to be complete")
                await load.reaches_all()
        check(cluster)


async def test_processes_that_start_at_the_same_moment_agree_on_the_streams(servers):
    """P11: three processes, each at a server of its own, create the streams of five new environments."""
    lanes = [LaneId(kind, partition) for kind in ("lanes", "later") for partition in range(PARTITIONS)]
    for env in "abcde":
        settings = [Settings(nats=(each.url,), env=env, replicas=3) for each in servers.nats.servers]
        stores = [connections.store(each, "process") for each in settings]
        await asyncio.gather(*(each.open() for each in stores))
        try:
            await asyncio.gather(*(each.prepare(lanes) for each in stores))
            await asyncio.gather(*(each.state(lane) for each in stores for lane in lanes))
        finally:
            await asyncio.gather(*(each.close() for each in stores))
        async with open_replication(settings[0]) as replication:
            assert {3} == {each.replicas for each in await replication.list_streams()}


@pytest.mark.full
async def test_streams_get_three_replicas_while_nodes_run(tmp_path, servers):
    """L, P11: `evenlane streams migrate` under load. Then a server may die, and nodes that started with `replicas = 1`
    work on.
    """
    settings = {"nats": servers.nats.url, "partitions": PARTITIONS, "lease_ttl": TTL_S}
    async with ProcessCluster(tmp_path, servers=servers, **settings) as cluster:
        await cluster.serve("a", "b")
        async with cluster.load() as load:
            await load.reaches_all()
            async with open_replication(cluster.settings) as replication:
                before = await replication.list_streams()
                assert {1} == {each.replicas for each in before}
                assert await migrate(replication, "online", 3) == len(before) == 2 * PARTITIONS + 4
                assert {(3, 3)} == {(each.replicas, each.current) for each in await replication.list_streams()}
                assert await migrate(replication, "online", 3) == 0
            await load.reaches_all()
            await servers.nats.servers[0].kill()
            await load.reaches_all()
        check(cluster)


@pytest.mark.full
async def test_leaders_of_all_streams_step_down_under_load(tmp_path, servers):
    """Fault 13: L, V; those of the lanes and of the settle log, three times each. No server dies, and no node."""
    settings = {"nats": servers.nats.url, "replicas": 3, "partitions": PARTITIONS, "lease_ttl": TTL_S}
    async with ProcessCluster(tmp_path, servers=servers, **settings) as cluster:
        nodes = await cluster.serve("a", "b")
        streams = [f"LANES_online_{partition}" for partition in range(PARTITIONS)] + ["SETTLED_online"]
        async with cluster.load() as load:
            for _ in range(3):
                await load.reaches_all()
                for stream in streams:
                    assert (await cluster.api(f"STREAM.LEADER.STEPDOWN.{stream}"))["success"]
            await load.reaches_all()
        check(cluster)
        assert [0, 0] == [node.logged("joining anew") for node in nodes]
