"""Tests of the supervisor of `--processes N`: it revokes the leases of its dead nodes, and of no others.

Where leases last ten minutes, a takeover can't come from the end of one.
"""

import asyncio
import os
import signal
from random import Random
from types import SimpleNamespace

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import TTL_S
from tests.ledger.promises import (
    begun_again,
    begun_too_late,
    check_cluster,
    check_generations,
    check_owner_keys,
    never_handled,
)
from tests.ledger.replay import check_repeats, crashes, fault
from tests.ledger.supervised_nodes import NOT_YET, behind_proxy
from tests.ledger.test_shares import GROUPS, ON_ALL, PROJECT, QPS, Skewed
from tests.support.until import until

pytestmark = pytest.mark.real

SLOW_ROUND_S = 0.25  # of loads that wait for restarts of processes
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_leases_of_dead_nodes_are_revoked_at_once_and_no_others(tmp_path, seed):
    """Faults 1, 9 and 10, E7, P4: L, D, O, Z1, Q; one group of nodes lives through five parts. Dead nodes come back
    under their names, and their new leases are left alone.
    """
    async with behind_proxy(tmp_path, handler="obey_with_a_child") as (cluster, proxy, nodes):
        await leave(nodes)
        faults = [await die_beside_a_stopped_one(nodes)]
        await crash(nodes, Random(seed).random() / 4)
        await die_without_etcd(nodes, proxy)
        await die_as_a_lender(nodes)
        assert len(nodes.killed) == nodes.revoked()
        check_cluster(cluster)
        check_repeats(cluster.entries(), *faults, *crashes(cluster.entries(), nodes.killed))


async def leave(nodes):
    """Z1, L: a node that gets SIGTERM gives its lease back itself, and repeats nothing."""
    cluster, leaving = nodes.cluster, nodes.member()
    async with cluster.load() as load:
        await load.reaches_all()
        pid = nodes.send(leaving, signal.SIGTERM)
        await until(lambda: leaving in cluster.history.nodes and nodes.pid(leaving) != pid, 60, "its next process")
        await nodes.own_all()
        await load.reaches_all()
    assert 0 == nodes.revoked()
    assert [] == begun_again(cluster.entries())


async def die_beside_a_stopped_one(nodes):
    """Z1, L: while one node dies, a stopped one loses neither lease nor partitions. Return the stop as a fault."""
    cluster = nodes.cluster
    frozen, victim = (node for node in nodes.ids if node != cluster.history.leader)
    async with cluster.load(round_s=SLOW_ROUND_S) as load:
        await load.reaches_all()
        lease, theirs = nodes.lease(frozen), cluster.history.owned(frozen)
        pid, stopped = nodes.send(frozen, signal.SIGSTOP), now_ns()
        try:
            nodes.kill(victim)
            await until(lambda: victim not in cluster.history.nodes, 30, "the dead node's lease to be revoked")
            await until(lambda: victim in cluster.history.nodes, 60, "it to be back")
            assert (lease, theirs) == (nodes.lease(frozen), cluster.history.owned(frozen))
        finally:
            woken = now_ns()
            os.kill(pid, signal.SIGCONT)
        await nodes.own_all()
        await load.reaches_all()
    await nodes.all_revoked()
    return fault("pause", pid, stopped, woken)


async def crash(nodes, delay_s):
    """A member, and the leader, which crashes again before it has its partitions back. A handler's own child process
    outlives its node, and keeps no lease.
    """
    cluster = nodes.cluster
    async with cluster.load(round_s=SLOW_ROUND_S) as load:
        for times in (1, 2):
            await load.reaches_all()
            await asyncio.sleep(delay_s)
            victim = nodes.member() if times == 1 else cluster.history.leader
            for again in range(times):
                dead = nodes.lease(victim)
                children = nodes.kill(victim)
                assert again or len(children) == 1
                await nodes.all_revoked()
                assert all(child.is_running() for child in children)
                assert 1 == nodes.supervisor.logged(f"{dead:016x}")
                await nodes.comes_back(victim, dead)
            await load.reaches_all()
            await nodes.own_all()
            assert nodes.lease(victim) != dead


async def die_without_etcd(nodes, proxy):
    """Etcd is silent, and then the supervisor is cut off as well. It asks until it is answered."""
    cluster = nodes.cluster
    async with cluster.load(round_s=SLOW_ROUND_S) as load:
        await load.reaches_all()
        etcd, asked = cluster.servers.etcd.pid, nodes.supervisor.logged(NOT_YET)
        os.kill(etcd, signal.SIGSTOP)
        try:
            nodes.kill(nodes.member())
            await until(lambda: nodes.supervisor.logged(NOT_YET) > asked, 60, "the supervisor to have asked")
        finally:
            os.kill(etcd, signal.SIGCONT)
        await load.reaches_all()
        await nodes.all_revoked()
        await nodes.own_all()
        asked = nodes.supervisor.logged(NOT_YET)
        await proxy.cut()
        nodes.kill(nodes.member())
        await until(lambda: nodes.supervisor.logged(NOT_YET) > asked, 60, "the supervisor to have asked")
        await proxy.start()
        await load.reaches_all()
        await nodes.own_all()
    await nodes.all_revoked()


async def die_as_a_lender(nodes):
    """Q: the next owners know which shares others may still use, although no lease has ended by itself."""
    cluster = nodes.cluster
    await cluster.topics(PROJECT, **ON_ALL)
    skewed = Skewed(cluster, await cluster.producer())
    groups = {node: skewed.groups_of(SimpleNamespace(name=node)) for node in nodes.ids}
    *_, hot, lender = sorted((node for node in nodes.ids if groups[node]), key=lambda node: len(groups[node]))
    await skewed.put(groups[hot], 600)
    await skewed.fast(round(QPS - QPS * len(groups[lender]) / GROUPS / 2), 0, groups[hot])  # more than without this one
    killed = now_ns()
    nodes.kill(lender)
    await until(lambda: nodes.lent_by(lender, killed), 30, "the record of its loans")
    await nodes.all_revoked()
    await nodes.own_all()
    await skewed.put(range(GROUPS), 60)
    await cluster.handled(timeout=60)
    skewed.check_quota(3)


@pytest.mark.parametrize("how", [pytest.param("closed", marks=pytest.mark.full), "silent"])
async def test_living_nodes_are_not_revoked(tmp_path, how):
    """Faults 2 and 10: O, L, Z1, D; a node is stopped, and then all are cut off from etcd: closed connections prove no
    death. Their leases end by themselves, and they rejoin.
    """
    async with behind_proxy(tmp_path, count=2, lease_ttl=TTL_S) as (cluster, proxy, nodes):
        victim = nodes.member()
        async with cluster.load() as load:
            await load.reaches_all()
            lease = nodes.lease(victim)
            pid = nodes.send(victim, signal.SIGSTOP)
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
        pids = [nodes.pid(node) for node in nodes.ids]
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
        assert (0, pids) == (nodes.revoked(), [nodes.pid(node) for node in nodes.ids])
        assert set() == never_handled(cluster.acknowledged, cluster.entries())
        assert [] == begun_too_late(cluster.entries()[before:])
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
