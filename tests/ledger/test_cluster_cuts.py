"""Tests of nodes that are cut off from etcd or from NATS, and of a silent etcd."""

import itertools
import logging
import os
import signal

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.runtime.embedded.etcd import request
from evenlane.ring.hashing import partition_of
from tests.ledger.cluster import PARTITIONS, TTL_S, ProcessCluster
from tests.ledger.process import NodeProcess
from tests.ledger.promises import (
    SECOND,
    begins,
    begun_again,
    begun_too_late,
    check_generations,
    check_owner_keys,
    never_handled,
    partition,
)
from tests.ledger.puts import one, some
from tests.ledger.replay import check_repeats, fault
from tests.support.etcd.proxy import Proxy, cut_off, heal
from tests.support.promises.history import Fault
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

TRUST_S = TTL_S - 0.5  # after the renewal was sent: see evenlane.engine.cluster.ownership.lease
NATS_AWAY_S = 5.0
KNOWS_WITHIN_S, SLOW_S = 5.0, 10.0  # SLOW_S is for a busy machine


async def three(cluster: ProcessCluster, **of_third: object) -> list[NodeProcess]:
    """Start a, b and c. `c` has these settings, and doesn't lead."""
    nodes = await cluster.start("a", "b")
    await until(lambda: cluster.history.leader != "", 30, "a leader")
    nodes += await cluster.start("c", **of_third)
    await cluster.topics(*cluster.projects)
    await cluster.owned_by(*nodes)
    return nodes


def project_on(cluster: ProcessCluster, node: str) -> str:
    """A new project whose messages go to a partition of this node."""
    names = (f"mark-{number}" for number in itertools.count())
    return next(each for each in names if partition_of(each, 0, 1, PARTITIONS, "hashed") in cluster.history.owned(node))


@pytest.mark.parametrize(
    ("etcd_cut", "nats_cut"), [("silent", "closed"), pytest.param("closed", "silent", marks=pytest.mark.full)]
)
async def test_cut_off_nodes_stop_before_their_takeover_and_rejoin(tmp_path, etcd_cut, nats_cut):
    """Faults 9 and 10, O, L, D: a node is cut off from etcd, then from NATS, and then etcd answers none."""
    async with (
        ProcessCluster(tmp_path) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as etcd,
        cluster.proxied(cluster.servers.nats.url.rpartition("/")[2]) as nats,
    ):
        nodes = await three(cluster, etcd=etcd.endpoint, nats=f"nats://{nats.endpoint}")
        faults = [
            await without_etcd(cluster, nodes, etcd, etcd_cut),
            await without_nats(cluster, nodes, nats, nats_cut),
        ]
        await all_without_etcd(cluster, nodes)
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        _log.info("%d doubled", check_repeats(entries, *faults))
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        assert all(node.running for node in nodes)


async def without_etcd(cluster: ProcessCluster, nodes: list[NodeProcess], proxy: Proxy, how: str) -> Fault:
    """Fault 10: the cut lasts longer than the lease of c. Return the fault."""
    a, b, c = nodes
    async with cluster.load() as load:
        await load.reaches_all()
        await cut_off(proxy, how)
        cut = now_ns()
        await until(lambda: not cluster.history.owned("c"), 30, "the lease's end")
        ended = now_ns()
        await cluster.owned_by(a, b)
        await load.reaches_all()
        away = len(cluster.entries())
        await until(lambda: now_ns() - cut > 2 * TTL_S * SECOND, 10)
        await load.reaches_all()
        assert c.pid not in {entry.pid for entry in cluster.entries()[away:]}
        await heal(proxy, how)
        healed = now_ns()
        await cluster.owned_by(a, b, c, timeout=60)
        back = (now_ns() - healed) / SECOND
        await load.reaches_all()
    last = max(entry.chosen for entry in begins(cluster.entries()) if entry.pid == c.pid and entry.at < ended)
    assert last - cut < TRUST_S * SECOND
    _log.info(
        "etcd %s: last begin %.2f s after the cut, others from %.2f s; owns again after %.2f s",
        how, (last - cut) / SECOND, (ended - cut) / SECOND, back,
    )  # fmt: skip
    return fault("etcd cut", c.pid, last)


async def without_nats(cluster: ProcessCluster, nodes: list[NodeProcess], proxy: Proxy, how: str) -> Fault:
    """Fault 10: the partitions of c go to others after 5 s, and it gets some back with NATS. Return the fault."""
    *_, c = nodes
    async with cluster.load() as load:
        await load.reaches_all()
        await cut_off(proxy, how)
        cut = now_ns()
        await until(lambda: not cluster.history.owned("c"), 30, "its partitions to be released")
        released = now_ns()
        await load.reaches_all()
        served = now_ns()
        await heal(proxy, how)
        await until(lambda: len(cluster.history.owned("c")) > 1, 30, "it to get partitions again")
        back = now_ns()
        await cluster.owned_by(*nodes, timeout=60)
        await load.reaches_all()
    assert (released - cut) / SECOND > NATS_AWAY_S
    _log.info(
        "NATS %s: released %.2f s after the cut, all served after %.2f s; owns again after %.2f s",
        how, (released - cut) / SECOND, (served - cut) / SECOND, (back - served) / SECOND,
    )  # fmt: skip
    return fault("nats cut", c.pid, released)


async def all_without_etcd(cluster: ProcessCluster, nodes: list[NodeProcess]) -> None:
    """Fault 9: no node starts a handler once its trust has ended; all resume by themselves, and repeat nothing."""
    etcd, before = cluster.servers.etcd.pid, len(cluster.entries())
    async with cluster.load() as load:
        await load.reaches_all()
        os.kill(etcd, signal.SIGSTOP)
        silent = now_ns()
        try:
            await until(lambda: now_ns() - silent > 2 * TTL_S * SECOND, 20)
        finally:
            os.kill(etcd, signal.SIGCONT)
        woken = now_ns()
        reached = await load.reaches_all()
        await cluster.owned_by(*nodes, timeout=60)
        await load.reaches_all()
    entries = cluster.entries()[before:]
    during = [entry.chosen - silent for entry in begins(entries) if silent < entry.chosen < woken]
    assert max(during) < TRUST_S * SECOND
    assert [] == begun_again(entries)
    _log.info(
        "last begin %.2f s into the silence; all served %.2f s after it",
        max(during) / SECOND, (reached - woken) / SECOND,
    )  # fmt: skip


async def test_node_that_returns_within_its_lease_has_missed_nothing(tmp_path):
    """V, P2: a cut from etcd that is shorter than the trust in the lease has no effect. Fault 11: within 5 s of its
    return after a compaction, a node carries out the newest plan and uses the newest topics.
    """
    async with (
        ProcessCluster(tmp_path, lease_ttl=60) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as proxy,
    ):
        a, b, c = await three(cluster, etcd=proxy.endpoint)
        await short_cut(cluster, c, proxy)

        mine = [cluster.projects[number] for number in cluster.history.owned("c")]
        first, then = mine[::2], mine[1::2]  # paused before the cut, and during it
        await cluster.topics(*first, state="paused")
        mark = project_on(cluster, "c")
        await cluster.topics(mark)
        producer, before = await cluster.producer(), len(cluster.entries())
        await cluster.put(producer, [one(mark, "known")])
        await cluster.handled()  # so c knows of the pause, too: it receives the changes in order
        await cluster.put(producer, [one(each, "waits") for each in first])
        await proxy.cut()
        await cluster.topics(*first, state="active")
        await cluster.topics(*then, state="paused")
        [d] = await cluster.spawn("d")
        await until(lambda: cluster.history.value("plan/d").get("partitions"), 30, "the plan for d")
        revision = await cluster.etcdctl_put("x", b"")
        answer = await request(cluster.servers.etcd.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        assert "error" not in answer
        assert [f"{mark}-known"] == [entry.id for entry in cluster.entries()[before:] if entry.what == "begin"]
        await proxy.start()
        healed = now_ns()
        await cluster.owned_by(a, b, c, d, timeout=KNOWS_WITHIN_S + SLOW_S)
        await cluster.handled(timeout=KNOWS_WITHIN_S + SLOW_S - (now_ns() - healed) / SECOND)
        _log.info("knows all %.2f s after the healing", (now_ns() - healed) / SECOND)
        going = [each for each in cluster.projects if each not in then]
        await cluster.put(producer, [one(each, "after") for each in (*then, *going)])
        await cluster.handled(*(f"{each}-after" for each in going))
        assert set() == {f"{each}-after" for each in then} & set(cluster.ids("begin"))
        await cluster.topics(*then, state="active")
        await cluster.handled()
        assert [] == begun_again(cluster.entries())
        assert 0 == c.logged("joining anew")
        check_owner_keys(cluster.history)


async def short_cut(cluster: ProcessCluster, node: NodeProcess, proxy: Proxy) -> None:
    """A cut within the lease: the node handles its messages all the time, and keeps its partitions."""
    mine = cluster.history.owned(node.name)
    producer = await cluster.producer()
    await proxy.cut()
    puts = [put for number in mine for put in some(cluster.projects[number], "during", 200, order="sleep 0.02")]
    await cluster.put(producer, puts)
    await cluster.handled(timeout=10)
    await proxy.start()
    await cluster.put(producer, [one(each, "healed") for each in cluster.projects])
    await cluster.handled()
    assert {node.pid} == {entry.pid for entry in cluster.entries() if partition(entry) in mine}
    assert {None} == {reign.deleted for reign in cluster.history.reigns() if reign.owner == node.name}
