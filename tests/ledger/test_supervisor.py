"""Tests of the supervisor of `--processes N`: it revokes the leases of its dead nodes, and of no others.

Where leases last ten minutes, a takeover can't come from the end of one.
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
    check_generations,
    check_owner_keys,
    never_handled,
)
from tests.ledger.replay import check_repeats, crashes, fault
from tests.ledger.test_shares import GROUPS, ON_ALL, PROJECT, QPS, Skewed
from tests.support.until import until

pytestmark = pytest.mark.real

LONG_S = 600
REVOKED = "a dead node's lease is revoked"
NOT_YET = "a dead node's lease isn't revoked yet"
IDS = ("n-0", "n-1", "n-2")
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)))


def children_of(pid):
    return psutil.Process(pid).children()


class Crew:
    """`evenlane run --processes 3`, whose nodes own all partitions."""

    def __init__(self, cluster, supervisor):
        self.cluster, self.supervisor = cluster, supervisor

    def pid(self, node):
        return self.cluster.history.value(f"nodes/{node}")["pid"]

    def lease(self, node):
        return self.cluster.history.keys[f"nodes/{node}"].lease

    def kill(self, node, number=signal.SIGKILL):
        """Send the signal, and return the pid."""
        pid = self.pid(node)
        os.kill(pid, number)
        return pid

    async def own_all(self, *also, within_s=60.0):
        nodes = {*IDS, *(node.name for node in also)}
        await until(
            lambda: self.cluster.history.is_owned_by(nodes, self.cluster.partitions), within_s, f"{nodes} to own all"
        )

    def revoked(self):
        """The number of leases that the supervisor has revoked."""
        return self.supervisor.logged(REVOKED)

    async def has_revoked(self, count):
        """Wait until the log has exactly this number of revocations. A takeover may be seen before its line."""
        await until(lambda: self.revoked() >= count, what=f"{count} revocations to be logged")
        assert count == self.revoked()

    def lent_by(self, node, since):
        """The shares that it lent, as the next owners of its partitions learn after that time."""
        items = [seen.item for seen in self.cluster.history.seen if seen.at > since and seen.key.startswith("held/")]
        records = [decode(HeldRecord, item.key, item.value) for item in items if item is not None]
        return [record.lent for record in records if record.id == node and record.lent]

    def member(self):
        """A node that doesn't lead."""
        return next(node for node in IDS if node != self.cluster.history.leader)


@asynccontextmanager
async def crew(cluster, **settings):
    [supervisor] = await cluster.start("n", processes=3, **{"lease_ttl": LONG_S} | settings)
    await cluster.topics(*cluster.projects)
    crew = Crew(cluster, supervisor)
    await crew.own_all()
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
    """L, O, Z1, Z5: of all that has happened so far."""
    entries = cluster.entries()
    assert set() == never_handled(cluster.acknowledged, entries)
    assert [] == begun_too_late(entries)
    check_owner_keys(cluster.history)
    check_generations(cluster.history)


@pytest.mark.parametrize("seed", SEEDS)
async def test_lease_of_each_dead_node_is_revoked_at_once(tmp_path, seed):
    """Fault 1, E7, P4: L, D, O, Z1; a member, the leader, and a node that crashes again before it has its partitions
    back. Each comes back under its name, and its new lease is left alone. A handler's own child process outlives its
    node, and keeps no lease.
    """
    async with ProcessCluster(tmp_path) as cluster, crew(cluster, handler="obey_with_a_child") as nodes:
        killed, revoked, children = [], 0, []
        try:
            async with cluster.load() as load:
                for leads in (False, True):
                    await load.reaches_all()
                    await asyncio.sleep(Random(seed).random() / 4)
                    victim = cluster.history.leader if leads else nodes.member()
                    dead, [child] = nodes.lease(victim), children_of(nodes.pid(victim))
                    children.append(child)
                    killed.append(nodes.kill(victim))
                    revoked += 1
                    await load.reaches_all()
                    await nodes.has_revoked(revoked)
                    assert child.is_running()
                    assert 1 == nodes.supervisor.logged(f"{dead:016x}")
                    await nodes.own_all()
                    assert nodes.lease(victim) != dead
                for _ in range(2):
                    before = nodes.lease("n-1")
                    children += children_of(nodes.pid("n-1"))
                    killed.append(nodes.kill("n-1"))
                    revoked += 1
                    await nodes.has_revoked(revoked)
                    await until(
                        lambda old=before: "n-1" in cluster.history.nodes and nodes.lease("n-1") != old,
                        60,
                        "n-1 to be back",
                    )
                await nodes.own_all()
                await load.reaches_all()
            assert revoked == nodes.revoked()
            check(cluster)
            check_repeats(cluster.entries(), *crashes(cluster.entries(), killed))
            children += [child for node in IDS for child in children_of(nodes.pid(node))]
        finally:
            for child in children:
                child.kill()


async def test_stopped_and_leaving_nodes_keep_their_leases(tmp_path):
    """Z1, L: while one node dies, a stopped one loses neither lease nor partitions. A node that gets SIGTERM gives its
    lease back itself, and repeats nothing.
    """
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        victim = nodes.member()
        async with cluster.load() as load:
            await load.reaches_all()
            pid = nodes.kill(victim, signal.SIGTERM)
            await until(lambda: victim in cluster.history.nodes and nodes.pid(victim) != pid, 60, "its next process")
            await nodes.own_all()
            await load.reaches_all()
        assert 0 == nodes.revoked()
        assert [] == begun_again(cluster.entries())

        frozen, killed = (node for node in IDS if node != cluster.history.leader)
        async with cluster.load() as load:
            await load.reaches_all()
            lease, theirs = nodes.lease(frozen), cluster.history.owned(frozen)
            pid = nodes.kill(frozen, signal.SIGSTOP)
            try:
                nodes.kill(killed)
                await until(lambda: killed not in cluster.history.nodes, 30, "the dead node's lease to be revoked")
                await until(lambda: killed in cluster.history.nodes, 60, "it to be back")
                assert (lease, theirs) == (nodes.lease(frozen), cluster.history.owned(frozen))
            finally:
                os.kill(pid, signal.SIGCONT)
            await nodes.own_all()
            await load.reaches_all()
        await nodes.has_revoked(1)
        check(cluster)


async def test_node_that_dies_without_etcd_is_revoked_when_it_answers(tmp_path):
    """Faults 9 and 10 with fault 1: L, D, O; etcd is silent, and then the supervisor is cut off as well. It asks until
    it is answered.
    """
    async with behind_proxy(tmp_path) as (cluster, proxy, nodes):
        killed = []
        async with cluster.load() as load:
            await load.reaches_all()
            etcd = cluster.servers.etcd.pid
            os.kill(etcd, signal.SIGSTOP)
            try:
                killed.append(nodes.kill(nodes.member()))
                await until(lambda: nodes.supervisor.logged(NOT_YET), 60, "the supervisor to have asked")
            finally:
                os.kill(etcd, signal.SIGCONT)
            await load.reaches_all()
            await nodes.has_revoked(1)
            await nodes.own_all()
            asked = nodes.supervisor.logged(NOT_YET)
            await proxy.cut()
            killed.append(nodes.kill(nodes.member()))
            await until(lambda: nodes.supervisor.logged(NOT_YET) > asked, 60, "the supervisor to have asked")
            await proxy.start()
            await load.reaches_all()
            await nodes.own_all()
        await nodes.has_revoked(2)
        check(cluster)
        check_repeats(cluster.entries(), *crashes(cluster.entries(), killed))


@pytest.mark.parametrize("how", [pytest.param("closed", marks=pytest.mark.full), "silent"])
async def test_living_nodes_are_not_revoked(tmp_path, how):
    """Faults 2 and 10: O, L, Z1, D; a node is stopped, and then all are cut off from etcd: closed connections prove no
    death. Their leases end by themselves, and they rejoin.
    """
    async with behind_proxy(tmp_path, lease_ttl=TTL_S) as (cluster, proxy, nodes):
        victim = nodes.member()
        async with cluster.load() as load:
            await load.reaches_all()
            lease = nodes.lease(victim)
            pid = nodes.kill(victim, signal.SIGSTOP)
            stopped = now_ns()
            try:
                await until(lambda: victim not in cluster.history.nodes, 30, "its lease's end")
                await load.reaches_all()
            finally:
                woken = now_ns()
                os.kill(pid, signal.SIGCONT)
            await nodes.own_all()
            await load.reaches_all()
        assert (pid, True) == (nodes.pid(victim), nodes.lease(victim) != lease)
        assert len(begun_too_late(cluster.entries())) <= 1  # see check_asleep in test_cluster_crashes
        check_repeats(cluster.entries(), fault("pause", pid, stopped, woken))
        before = len(cluster.entries())

        [other] = await cluster.start("other")
        await nodes.own_all(other)
        pids = [nodes.pid(node) for node in IDS]
        async with cluster.load() as load:
            await load.reaches_all()
            if how == "closed":
                await proxy.cut()
            else:
                proxy.passing.clear()
            await cluster.owned_by(other)
            await load.reaches_all()
            if how == "closed":
                await proxy.start()
            proxy.passing.set()
            await nodes.own_all(other)
            await load.reaches_all()
        assert (0, pids) == (nodes.revoked(), [nodes.pid(node) for node in IDS])
        assert set() == never_handled(cluster.acknowledged, cluster.entries())
        assert [] == begun_too_late(cluster.entries()[before:])
        check_owner_keys(cluster.history)
        check_generations(cluster.history)


async def test_next_owners_learn_the_loans_of_a_dead_node(tmp_path):
    """Q: the next owners know which shares others may still use, although no lease has ended by itself."""
    async with ProcessCluster(tmp_path) as cluster, crew(cluster) as nodes:
        await cluster.topics(PROJECT, **ON_ALL)
        skewed = Skewed(cluster, await cluster.producer())
        groups = {node: skewed.groups_of(SimpleNamespace(name=node)) for node in IDS}
        *_, hot, lender = sorted((node for node in IDS if groups[node]), key=lambda node: len(groups[node]))
        await skewed.put(groups[hot], 600)
        await skewed.fast(round(QPS - QPS * len(groups[lender]) / GROUPS / 2), 0)  # more than without this lender
        nodes.kill(lender)
        killed = now_ns()
        await until(lambda: nodes.lent_by(lender, killed), 30, "the record of its loans")
        await nodes.has_revoked(1)
        await nodes.own_all()
        await skewed.put(range(GROUPS), 60)
        await cluster.handled(timeout=60)
        skewed.check_quota(3)
        check(cluster)
