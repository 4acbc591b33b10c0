"""Tests of an etcd that is wiped, or restored from a backup, under running nodes."""

import asyncio
import logging
import shutil

import aiohttp
import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import TTL_S, ProcessCluster
from tests.ledger.promises import SECOND, begun_too_late, never_handled
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

REPAIRED_S = TTL_S + 2
SLOW_S = 10  # for a slow machine, and until etcd is asked again
ROLLED_BACK = "etcd has forgotten what it knew of owners"
LOST_TOPICS = "etcd has lost topics: what is known of them stays in force"


async def _replace(cluster, backup=None):
    """Restart etcd with this data, or none. Return the time when it serves."""
    etcd = cluster.servers.etcd
    store = etcd.data_dir / etcd.kind
    await etcd.kill()
    await asyncio.to_thread(shutil.rmtree, store)
    if backup is not None:
        await asyncio.to_thread(shutil.copytree, backup, store)
    await etcd.start()
    return now_ns()


async def _backup(cluster, folder):
    etcd = cluster.servers.etcd
    await etcd.stop()
    await asyncio.to_thread(shutil.copytree, etcd.data_dir / etcd.kind, folder)
    await etcd.start()


async def _served(cluster, load, nodes, since):
    """Wait until all partitions are owned as planned, and served. Return the time since then, in s."""
    await cluster.owned_by(*nodes, timeout=60)
    return (await load.reaches_all(timeout=60) - since) / SECOND


async def _wait_until_unready(address):
    """Wait until /readyz of that node reports that etcd doesn't know the owners."""

    async def not_ready():
        async with aiohttp.ClientSession() as client, client.get(f"{address}/readyz") as response:
            return response.status == 503 and "disagrees with etcd about what it owns" in await response.text()

    await until(not_ready, 30, "/readyz to report it")


async def test_nodes_survive_a_wiped_etcd(tmp_path):
    """F2, O, L: etcd has a lower revision and no keys. The nodes go on under higher epochs than before, with the topics
    that they knew; `topics apply` restores these for a node that joins.
    """
    async with ProcessCluster(tmp_path) as cluster:
        await asyncio.gather(*(cluster.etcdctl_put("other", b"") for _ in range(300)))
        nodes = await cluster.start("a", "b")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(*nodes)
        before = {partition: epoch for partition, epoch, *_ in cluster.history.reigns()}
        async with cluster.load() as load:
            await load.reaches_all()
            since = await _replace(cluster)
            took_s = await _served(cluster, load, nodes, since)
            await cluster.topics(*cluster.projects)
            [c] = await cluster.start("c")
            await cluster.owned_by(*nodes, c)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        epochs = {partition: cluster.history.value(f"owners/{partition}")["epoch"] for partition in before}
        assert all(epochs[partition] > epoch for partition, epoch in before.items())
        assert [1, 1] == [node.logged(ROLLED_BACK) for node in nodes]
        assert [1, 1] == [node.logged(LOST_TOPICS) for node in nodes]
        # A node that had to rejoin writes that it has done so a little later.
        await until(lambda: not any(cluster.history.value(f"nodes/{n}")["troubles"] for n in "abc"), 30, "no troubles")
        _log.info("served again %.2f s after the wipe", took_s)
        assert took_s < REPAIRED_S + SLOW_S


async def test_nodes_survive_an_older_backup_of_etcd(tmp_path):
    """F3, O, L: in the backup, the first node owns everything under a lease that it still has, and the others don't
    exist. All nodes report the difference, and soon agree with etcd. So do nodes that start later.
    """
    async with ProcessCluster(tmp_path) as cluster:
        [a] = await cluster.start("a", http_port=0)
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(a)
        address = await cluster.address("a")
        await _backup(cluster, tmp_path / "backup")
        others = await cluster.start("b", "c")
        await cluster.owned_by(a, *others)
        async with cluster.load() as load:
            await load.reaches_all()
            since = await _replace(cluster, tmp_path / "backup")
            _, took_s = await asyncio.gather(_wait_until_unready(address), _served(cluster, load, [a, *others], since))
        # Node a has two reasons, of which it may see one or both before it joins again.
        assert all(node.logged(ROLLED_BACK) for node in (a, *others))
        for node in (a, *others):
            await node.kill()
        await _replace(cluster, tmp_path / "backup")
        async with cluster.load() as load:
            nodes = await cluster.start("b", "d")
            await cluster.owned_by(*nodes)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        records = [record for node in "abc" for record in cluster.history.values(f"nodes/{node}")]
        assert "ownership" in {kind for record in records for kind in record["troubles"]}
        _log.info("served again %.2f s after the restore", took_s)
        assert took_s < REPAIRED_S + SLOW_S
