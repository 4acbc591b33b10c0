"""Tests of quota lending (Q, W): one topic on three nodes, with all its work on one, which borrows from the others."""

from collections import Counter

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.ledger.cluster import PARTITIONS, ProcessCluster
from tests.ledger.promises import begun_again, never_handled
from tests.oracles.limiter import excess, steady
from tests.support.until import until

pytestmark = pytest.mark.real

QPS, GROUPS = 60, 24
SECOND = 1_000_000_000
ON_ALL = {"qps": QPS, "groups": GROUPS, "spread": PARTITIONS, "burst": 1}
PROJECT = "acme"


class Skewed:
    """A load whose messages all go to groups of one node."""

    def __init__(self, cluster, producer):
        self.cluster, self.producer, self.count = cluster, producer, 0

    def groups_of(self, node):
        owners = {number for number, name in self.cluster.history.owners.items() if name == node.name}
        return [g for g in range(GROUPS) if partition_of(PROJECT, g, PARTITIONS, PARTITIONS, "hashed") in owners]

    async def put(self, groups, count):
        numbers = range(self.count, self.count + count)
        self.count += count
        puts = [Put(PROJECT, b"", group=groups[n % len(groups)], id=f"{PROJECT}-{n}") for n in numbers]
        await self.cluster.put(self.producer, puts)

    def begun(self, since):
        return [entry.at for entry in self.cluster.begins(PROJECT) if entry.at >= since]

    async def fast(self, rate, since, groups):
        """Wait for a second with more begins than `rate`. These groups have work until then: on a busy machine, quota
        is lent late.
        """

        async def now():
            if len(self.cluster.ids()) > self.count - 2 * rate:
                await self.put(groups, 2 * rate)
            times = self.begun(since)
            return any(at - times[n - rate] < SECOND for n, at in enumerate(times) if n >= rate)

        await until(now, 60, f"more than {rate} in a second")

    def check_quota(self, nodes):
        """Q: any window of w seconds has at most qps * w + burst + one message per node."""
        times = sorted(entry.chosen for entry in self.cluster.begins(PROJECT))
        most = excess(map(steady(QPS), times))
        assert most <= 1 + nodes, f"{float(most):.1f} beyond the quota; {Counter(t // SECOND for t in times)}"


async def test_unused_shares_are_lent_to_the_busy_node(tmp_path):
    """Q, W, E3, L: a node with a third of the topic gets nearly all of it, then another one does, then each has its own
    share again. The quota holds throughout, also while leader and lender die.
    """
    async with ProcessCluster(tmp_path) as cluster:
        [first] = await cluster.start("a")
        await cluster.topics(PROJECT, **ON_ALL)
        nodes = [first, *await cluster.start("b", "c")]  # they lend before they had any message of it
        await cluster.owned_by(*nodes)
        skewed = Skewed(cluster, await cluster.producer())
        for node in nodes[:2]:
            since, groups = now_ns(), skewed.groups_of(node)
            await skewed.put(groups, 150)
            await skewed.fast(QPS * 3 // 4, since, groups)
            await cluster.handled(timeout=60)
        await skewed.put(range(GROUPS), 150)
        await cluster.handled(timeout=60)
        skewed.check_quota(3)
        assert not begun_again(cluster.entries())
        await die(skewed, nodes)
        skewed.check_quota(4)
        assert not never_handled({f"{PROJECT}-{n}" for n in range(skewed.count)}, cluster.entries())


async def die(skewed, nodes):
    """Kill -9 of the leader, of a node that lends, a join and a drain, all while one node borrows."""
    cluster = skewed.cluster
    leader = next(node for node in nodes if node.name == cluster.history.leader)
    [hot, lender] = [node for node in nodes if node is not leader]
    since, groups = now_ns(), skewed.groups_of(hot)
    await skewed.put(groups, 900)
    await skewed.fast(QPS * 3 // 4, since, groups)
    await leader.kill()
    await cluster.owned_by(hot, lender, timeout=60)
    await skewed.fast(QPS * 3 // 4, now_ns(), groups)
    await lender.kill()
    await cluster.owned_by(hot, timeout=60)
    [new] = await cluster.start("d")
    await cluster.owned_by(hot, new, timeout=60)
    assert 0 == await hot.stop()
    await cluster.owned_by(new, timeout=60)
    await cluster.handled(timeout=60)
