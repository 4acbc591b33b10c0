"""Nodes of `--processes N` that die: their supervisor ends the leases of those that are gone, and of nobody else.

Leases of ten minutes: what the tests wait for can't come by their ends.
"""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace

import psutil
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.ring.membership.records import HeldRecord, decode
from tests.ledger.cluster import TTL_S, ProcessCluster
from tests.ledger.promises import (
    begun_again,
    begun_too_late,
    check_doubled_by,
    check_generations,
    check_owner_keys,
    never_handled,
)
from tests.ledger.test_shares import GROUPS, ON_ALL, PROJECT, QPS, Skewed
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

LONG_S = 600
REVOKED = "a dead node's lease is revoked"
NOT_YET = "a dead node's lease isn't revoked yet"
IDS = ("n-0", "n-1", "n-2")
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)))


class Crew:
    """`evenlane run --processes 3`, whose nodes own everything."""

    def __init__(self, cluster, supervisor):
        self.cluster, self.supervisor = cluster, supervisor

    def pid(self, node):
        return self.cluster.history.value(f"nodes/{node}")["pid"]

    def lease(self, node):
        return self.cluster.history.keys[f"nodes/{node}"].lease

    def kill(self, node, number=signal.SIGKILL):
        """Returns its pid."""
        pid = self.pid(node)
        os.kill(pid, number)
        return pid

    async def carried_out(self, *also, within_s=40.0):
        nodes = {*IDS, *(node.name for node in also)}
        await until(
            lambda: self.cluster.history.carried_out(nodes, self.cluster.partitions), within_s, f"{nodes} to own all"
        )

    def revoked(self):
        """How many times the supervisor has said so."""
        return self.supervisor.logged(REVOKED)

    def lent_by(self, node, since):
        """Of what it lent the next owners of its partitions are told after that instant."""
        items = [seen.item for seen in self.cluster.history.seen if seen.at > since and seen.key.startswith("held/")]
        records = [decode(HeldRecord, item.key, item.value) for item in items if item is not None]
        return [record.lent for record in records if record.id == node and record.lent]

    def member(self):
        """One that doesn't lead."""
        return next(node for node in IDS if node != self.cluster.history.leader)


@asynccontextmanager
async def crew(cluster, **settings):
    [supervisor] = await cluster.start("n", processes=3, **{"lease_ttl": LONG_S} | settings)
    await cluster.topics(*cluster.projects)
    crew = Crew(cluster, supervisor)
    await crew.carried_out()
    yield crew
    assert 0 == await supervisor.stop(), supervisor.last_words()


@asynccontextmanager
async def behind_proxy(folder, **settings):
    """Supervisor and nodes reach etcd through a proxy."""
    async with (
        ProcessCluster(folder) as cluster,
        cluster.proxied(cluster.servers.etcd.endpoint) as proxy,
        crew(cluster, etcd=proxy.endpoint, **settings) as nodes,
    ):
        yield cluster, proxy, nodes


def check(cluster):
    """L, O, Z1, Z5."""
    entries = cluster.entries()
    assert set() == never_handled(cluster.acknowledged, entries)
    assert [] == begun_too_late(entries)
    check_owner_keys(cluster.history)
    check_generations(cluster.history)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("who", ["member", "leader"])
async def test_kill_9_of_a_node_is_seen_at_once(tmp_path, who, seed):
    """Fault 1, E7, P4: L, D, O, Z1; it comes back under its name, and its new lease is left alone."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        async with cluster.load() as load:
            await load.reaches_all()
            await asyncio.sleep(Random(seed).random() / 2)
            victim = cluster.history.leader if who == "leader" else nodes.member()
            dead = nodes.lease(victim)
            pid = nodes.kill(victim)
            killed = now_ns()
            await load.reaches_all()
            assert 1 == nodes.revoked()
            await nodes.carried_out()
            await load.reaches_all()
        check(cluster)
        check_doubled_by(cluster.entries(), pid, killed)
        assert 1 == nodes.supervisor.logged(f"{dead:016x}")
        assert (1, True) == (nodes.revoked(), nodes.lease(victim) != dead)


async def test_a_node_that_crashes_again_and_again_is_seen_each_time(tmp_path):
    """E7, Z1: before it has its share of the partitions again, too."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        async with cluster.load() as load:
            await load.reaches_all()
            for count in (1, 2, 3):
                before = nodes.lease("n-1")
                nodes.kill("n-1")
                await until(lambda n=count: nodes.revoked() == n, 10, "the revocation")
                await until(
                    lambda old=before: "n-1" in cluster.history.nodes and nodes.lease("n-1") != old, 20, "it to be back"
                )
            await nodes.carried_out()
        check(cluster)


async def test_one_that_is_killed_while_etcd_is_away_is_seen_when_it_is_back(tmp_path):
    """Fault 9 with fault 1: L, O; the supervisor asks until it is answered."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        async with cluster.load() as load:
            await load.reaches_all()
            etcd = cluster.servers.etcd.pid
            os.kill(etcd, signal.SIGSTOP)
            try:
                pid = nodes.kill(nodes.member())
                killed = now_ns()
                await until(lambda: nodes.supervisor.logged(NOT_YET), 20, "the supervisor to have asked")
            finally:
                os.kill(etcd, signal.SIGCONT)
            await load.reaches_all(40)
            assert 1 == nodes.revoked()
            await nodes.carried_out()
        check(cluster)
        check_doubled_by(cluster.entries(), pid, killed)


async def test_a_node_that_is_stopped_is_not_gone(tmp_path):
    """Fault 2: O, L, Z1; its lease ends by itself, and when it wakes it joins anew."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster, lease_ttl=TTL_S) as nodes:
        victim = nodes.member()
        async with cluster.load() as load:
            await load.reaches_all()
            lease = nodes.lease(victim)
            pid = nodes.kill(victim, signal.SIGSTOP)
            stopped = now_ns()
            try:
                await until(lambda: victim not in cluster.history.nodes, 20, "its lease's end")
                await load.reaches_all()
            finally:
                os.kill(pid, signal.SIGCONT)
            await nodes.carried_out()
            await load.reaches_all()
        assert 0 == nodes.revoked()
        assert (pid, True) == (nodes.pid(victim), nodes.lease(victim) != lease)
        assert set() == never_handled(cluster.acknowledged, cluster.entries())
        assert len(begun_too_late(cluster.entries())) <= 1  # see check_asleep in test_cluster_crashes
        check_owner_keys(cluster.history)
        check_doubled_by(cluster.entries(), pid, stopped)


async def test_one_that_is_stopped_keeps_its_lease_while_another_dies(tmp_path):
    """Z1: nobody but who died loses anything."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        frozen, killed = (node for node in IDS if node != cluster.history.leader)
        async with cluster.load() as load:
            await load.reaches_all()
            lease, theirs = nodes.lease(frozen), cluster.history.owned(frozen)
            pid = nodes.kill(frozen, signal.SIGSTOP)
            try:
                nodes.kill(killed)
                await until(lambda: killed not in cluster.history.nodes, 20, "the dead one's lease to be revoked")
                await until(lambda: killed in cluster.history.nodes, 20, "it to be back")
                assert (lease, theirs) == (nodes.lease(frozen), cluster.history.owned(frozen))
            finally:
                os.kill(pid, signal.SIGCONT)
            await nodes.carried_out()
            await load.reaches_all()
        assert 1 == nodes.revoked()
        check(cluster)


@pytest.mark.parametrize("how", [pytest.param("closed", marks=pytest.mark.full), "silent"])
async def test_nodes_cut_off_from_etcd_are_not_gone(tmp_path, how):
    """Fault 10: O, L, Z1; closed connections are no proof. Their leases end by themselves, and they join anew."""
    async with behind_proxy(tmp_path, lease_ttl=TTL_S) as (cluster, proxy, nodes):
        [other] = await cluster.start("other")
        await nodes.carried_out(other)
        pids = [nodes.pid(node) for node in IDS]
        async with cluster.load() as load:
            await load.reaches_all()
            if how == "closed":
                await proxy.cut()
            else:
                proxy.passing.clear()
            await cluster.carried_out(other)
            await load.reaches_all()
            if how == "closed":
                await proxy.start()
            proxy.passing.set()
            await nodes.carried_out(other)
            await load.reaches_all()
        assert (0, pids) == (nodes.revoked(), [nodes.pid(node) for node in IDS])
        check(cluster)


async def test_one_that_dies_cut_off_from_etcd_is_seen_when_the_link_is_back(tmp_path):
    """Fault 10 with fault 1: its supervisor is cut off as well."""
    async with behind_proxy(tmp_path) as (cluster, proxy, nodes):
        async with cluster.load() as load:
            await load.reaches_all()
            await proxy.cut()
            nodes.kill(nodes.member())
            await until(lambda: nodes.supervisor.logged(NOT_YET), 20, "the supervisor to have asked")
            await proxy.start()
            await load.reaches_all(40)
            await nodes.carried_out()
        assert 1 == nodes.revoked()
        check(cluster)


async def test_a_node_that_exits_in_order_gives_its_lease_back_itself(tmp_path):
    """Z1, L: SIGTERM to one of them; nothing twice."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        victim = nodes.member()
        async with cluster.load() as load:
            await load.reaches_all()
            pid = nodes.kill(victim, signal.SIGTERM)
            await until(lambda: victim in cluster.history.nodes and nodes.pid(victim) != pid, 40, "its next life")
            await nodes.carried_out()
            await load.reaches_all()
        assert 0 == nodes.revoked()
        check(cluster)
        assert [] == begun_again(cluster.entries())


async def test_what_a_handler_started_outlives_its_node_and_holds_no_lease(tmp_path):
    """E7: a process of the handler's own."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster, handler="obey_with_a_child") as nodes:
        children = []
        try:
            async with cluster.load() as load:
                await load.reaches_all()
                victim = nodes.member()
                [child] = psutil.Process(nodes.pid(victim)).children()
                nodes.kill(victim)
                await load.reaches_all()
                assert (1, True) == (nodes.revoked(), child.is_running())
                await nodes.carried_out()
                await load.reaches_all()
            children = [child, *(each for node in IDS for each in psutil.Process(nodes.pid(node)).children())]
            check(cluster)
        finally:
            for each in children:
                each.kill()


async def test_kill_9_of_a_node_that_lends_its_shares(tmp_path):
    """Q: the next owners know what others may use still, though nobody has waited for a lease."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        await cluster.topics(PROJECT, **ON_ALL)
        skewed = Skewed(cluster, await cluster.producer())
        groups = {node: skewed.groups_of(SimpleNamespace(name=node)) for node in IDS}
        *_, hot, lender = sorted((node for node in IDS if groups[node]), key=lambda node: len(groups[node]))
        await skewed.put(groups[hot], 900)
        await skewed.fast(round(QPS - QPS * len(groups[lender]) / GROUPS / 2), 0)  # more than without this lender
        nodes.kill(lender)
        killed = now_ns()
        await until(lambda: nodes.lent_by(lender, killed), 10, "the record of its loans")
        await until(lambda: nodes.revoked() == 1, 10, "the revocation")
        await nodes.carried_out()
        await skewed.put(range(GROUPS), 60)
        await cluster.handled(timeout=60)
        skewed.check_quota(3)
        check(cluster)
