"""Tests of an etcd of three members that loses its leader, or its quorum, under a working cluster."""

import asyncio
import logging
import signal
from random import Random

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import ProcessCluster
from tests.ledger.etcd_trio import MEMBERS, Trio
from tests.ledger.promises import (
    SECOND,
    begins,
    begun_again,
    begun_too_late,
    check_generations,
    check_owner_keys,
    never_handled,
    partition,
    pause,
)
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

TTL_S = 5
TRUST = 0.8  # of the time to live of a lease
STEP_DOWN_S = 2.0  # a leader of etcd renews leases until it misses its quorum, which takes two election timeouts


@pytest.mark.parametrize(
    ("how", "ttl"),
    # A node notices a hanging server later than a closed connection.
    [("killed", TTL_S), pytest.param("hanging", 2 * TTL_S, marks=pytest.mark.full)],
)
async def test_loss_of_etcds_leader_has_no_effect(tmp_path, how, ttl):
    """Fault 8, V, P2: no ownership is lost, no node stops, and all partitions are served while etcd has no leader."""
    async with (
        Trio(tmp_path / "trio") as trio,
        ProcessCluster(tmp_path, etcd=trio.endpoints, lease_ttl=ttl) as cluster,
    ):
        nodes = await cluster.serve("a", "b", "c")
        async with cluster.load(round_s=0.025) as load:  # a partition that isn't served is soon noticed
            await load.reaches_all()
            leader = await until(trio.leader, 30, "a leader")
            rest = [member for member in MEMBERS if member != leader]
            if how == "killed":
                await trio.kill(leader)
            else:
                trio.send(leader, signal.SIGSTOP)
            gone = now_ns()
            await until(lambda: trio.leader(*rest), 30, "another leader")
            elected = now_ns()
        async with cluster.load() as load:
            until_ns = elected + (ttl + 1) * SECOND  # a new leader gives each lease its whole time again
            await until(lambda: now_ns() > until_ns, 30)
            await load.reaches_all()
            if how == "killed":
                [d] = await cluster.start("d")  # two members of three suffice
                await cluster.owned_by(*nodes, d)
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)

        assert [] == [reign for reign in cluster.history.reigns() if gone < (reign.deleted or 0) < until_ns]
        assert [0, 0, 0] == [node.logged("joining anew") + node.logged("fenced") for node in nodes]
        leaderless = {partition(entry) for entry in entries if entry.what == "begin" and gone < entry.at < elected}
        assert set(range(cluster.partitions)) == leaderless
        longest = max(pause(entries, p, gone, until_ns) for p in range(cluster.partitions))
        assert longest < TRUST * ttl  # a lost partition would pause at least that long
        check_owner_keys(cluster.history)
        _log.info(
            "another leader after %.2f s; longest pause of a partition %.2f s", (elected - gone) / SECOND, longest
        )


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
async def test_each_member_of_etcd_dies_and_comes_back(tmp_path, seed):
    """Fault 8, L, V: kill -9 and SIGTERM of each member in any order, the leader included, under load."""
    chance = Random(seed)
    async with (
        Trio(tmp_path / "trio") as trio,
        ProcessCluster(tmp_path, etcd=trio.endpoints, lease_ttl=TTL_S) as cluster,
    ):
        await cluster.serve("a", "b", "c")
        async with cluster.load() as load:
            for member in chance.sample(MEMBERS, 3):
                how = chance.choice([trio.kill, trio.stop])
                await how(member)
                rest = [each for each in MEMBERS if each != member]
                await until(lambda rest=rest: trio.leader(*rest), 30, "a leader of the others")
                await load.reaches_all()
                await trio.start(member)
                await until(trio.leader, 60, "all three to agree")
                await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        check_owner_keys(cluster.history)


@pytest.mark.full
async def test_loss_of_etcds_quorum_stops_all_nodes_until_it_is_back(tmp_path):
    """Fault 9, O, L: all nodes stop when their trust ends, and resume when the quorum is back."""
    async with (
        Trio(tmp_path / "trio") as trio,
        ProcessCluster(tmp_path, etcd=trio.endpoints, lease_ttl=TTL_S) as cluster,
    ):
        nodes = await cluster.serve("a", "b", "c")
        async with cluster.load() as load:
            await load.reaches_all()
            await trio.kill(1, 2)
            gone = now_ns()
            await asyncio.sleep(3 * TTL_S)
            await trio.start(1, 2)
            back = now_ns()
            await until(trio.leader, 30, "a leader")
            reached = await load.reaches_all(timeout=60)
            await cluster.owned_by(*nodes, timeout=60)
        entries = cluster.entries()
        during = [entry.at - gone for entry in begins(entries) if gone < entry.at < back]
        assert max(during) < (TRUST * TTL_S + STEP_DOWN_S) * SECOND
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_again(entries)
        assert [] == begun_too_late(entries)
        check_owner_keys(cluster.history)
        check_generations(cluster.history)
        _log.info("all served again %.2f s after the quorum's return", (reached - back) / SECOND)
