"""Tests of nodes that are cut off from etcd or from NATS, and of a silent etcd."""

import asyncio
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
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

TRUST_S = TTL_S - 0.5  # after the renewal was sent: see evenlane.engine.cluster.ownership.lease
NATS_AWAY_S = 5.0
KNOWS_WITHIN_S, SLOW_S = 5.0, 10.0  # SLOW_S is for a busy machine


def cut_off(proxy: Proxy, how: str):
    """`closed`: connections end, and no new one is accepted. `silent`: they stay open, and nothing passes."""
    if how == "closed":
        return proxy.cut()
    proxy.passing.clear()
    return asyncio.sleep(0)


async def heal(proxy: Proxy, how: str) -> None:
    if how == "closed":
        await proxy.start()
    proxy.passing.set()


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
    return next(each for each in names if partition_of(each, 0, 1, PARTITIONS) in cluster.history.owned(node))


@pytest.mark.parametrize("how", ["silent", pytest.param("closed", marks=pytest.mark.full)])
async def test_node_cut_off_from_etcd_stops_before_its_takeover(tmp_path, how):
    """Fault 10, O, L, D: the cut lasts longer than its lease, and it rejoins by itself."""
    async with ProcessCluster(tmp_path) as cluster, cluster.proxied(cluster.servers.etcd.endpoint) as proxy:
        a, b, c = await three(cluster, etcd=proxy.endpoint)
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
        entries = cluster.entries()
        last = max(entry.chosen for entry in begins(entries) if entry.pid == c.pid and entry.at < ended)
        assert last - cut < TRUST_S * SECOND
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        doubled = check_repeats(entries, fault("etcd cut", c.pid, last))
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        _log.info(
            "%s: %d doubled; last begin %.2f s after the cut, others from %.2f s; owns again after %.2f s",
            how, doubled, (last - cut) / SECOND, (ended - cut) / SECOND, back,
        )  # fmt: skip


@pytest.mark.parametrize("how", ["closed", pytest.param("silent", marks=pytest.mark.full)])
async def test_node_cut_off_from_nats_hands_its_partitions_over(tmp_path, how):
    """Fault 10, O, L, D: its partitions go to others after 5 s, and it gets some back when NATS is back."""
    async with (
        ProcessCluster(tmp_path) as cluster,
        cluster.proxied(cluster.servers.nats.url.rpartition("/")[2]) as proxy,
    ):
        a, b, c = await three(cluster, nats=f"nats://{proxy.endpoint}")
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
            await cluster.owned_by(a, b, c, timeout=60)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        doubled = check_repeats(entries, fault("nats cut", c.pid, released))
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        assert (released - cut) / SECOND > NATS_AWAY_S
        _log.info(
            "%s: %d doubled; released %.2f s after the cut, all served after %.2f s; owns again after %.2f s",
            how, doubled, (released - cut) / SECOND, (served - cut) / SECOND, (back - served) / SECOND,
        )  # fmt: skip


async def test_silent_etcd_stops_all_nodes_until_it_answers(tmp_path):
    """Fault 9, O, L: no node starts a handler once its trust has ended; all resume by themselves."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        etcd = cluster.servers.etcd.pid
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
        entries = cluster.entries()
        during = [entry.chosen - silent for entry in begins(entries) if silent < entry.chosen < woken]
        assert max(during) < TRUST_S * SECOND
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        assert [] == begun_again(entries)
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        assert all(node.running for node in nodes)
        _log.info(
            "last begin %.2f s into the silence; all served %.2f s after it",
            max(during) / SECOND, (reached - woken) / SECOND,
        )  # fmt: skip


async def test_node_follows_plan_and_topics_after_a_compaction(tmp_path):
    """Fault 11: within 5 s of its return, a node carries out the newest plan and uses the newest topics."""
    async with (
        ProcessCluster(tmp_path, lease_ttl=60) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as proxy,
    ):
        a, b, c = await three(cluster, etcd=proxy.endpoint)
        mine = [cluster.projects[number] for number in cluster.history.owned("c")]
        first, then = mine[::2], mine[1::2]  # paused before the cut, and during it
        await cluster.topics(*first, state="paused")
        mark = project_on(cluster, "c")
        await cluster.topics(mark)
        producer = await cluster.producer()
        await cluster.put(producer, [one(mark, "known")])
        await cluster.handled()  # so c knows of the pause, too: it receives the changes in order
        await cluster.put(producer, [one(each, "waits") for each in first])
        await proxy.cut()
        await cluster.topics(*first, state="active")
        await cluster.topics(*then, state="paused")
        [d] = await cluster.start("d")
        await until(lambda: cluster.history.value("plan/d").get("partitions"), 30, "the plan for d")
        revision = await cluster.etcdctl_put("x", b"")
        answer = await request(cluster.servers.etcd.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        assert "error" not in answer
        assert [f"{mark}-known"] == cluster.ids("begin")
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


async def test_short_cut_from_etcd_has_no_effect(tmp_path):
    """V, P2: the cut is shorter than the trust in the lease."""
    async with (
        ProcessCluster(tmp_path, lease_ttl=20) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as proxy,
    ):
        _, _, c = await three(cluster, etcd=proxy.endpoint)
        mine = cluster.history.owned("c")
        producer = await cluster.producer()
        await proxy.cut()
        puts = [put for number in mine for put in some(cluster.projects[number], "during", 200, order="sleep 0.02")]
        await cluster.put(producer, puts)
        await cluster.handled(timeout=10)
        await proxy.start()
        await cluster.put(producer, [one(each, "after") for each in cluster.projects])
        await cluster.handled()
        assert {c.pid} == {entry.pid for entry in cluster.entries() if partition(entry) in mine}
        assert {None} == {reign.deleted for reign in cluster.history.reigns() if reign.owner == "c"}
