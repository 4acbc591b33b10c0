"""Tests of E3 and K6 on two nodes: a quota goes up and down under load. Groups are added at once, and removed when they
are empty. Nothing is lost or repeated, and ordered topics keep the order of each key.
"""

import asyncio
import json
import logging
from collections import Counter

import nats
import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.put import Put
from evenlane.quota.topics.topic import decode_accepted
from evenlane.ring.hashing import group_of, partition_of
from tests.ledger.cli import evenlane, patiently
from tests.ledger.cluster import PARTITIONS, ProcessCluster
from tests.ledger.handlers import forgive
from tests.ledger.promises import most_in_a_second, never_handled
from tests.ledger.replay import check_key_order, check_repeats, crashes
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

KEYS = 60
SPREAD = 8  # partitions, so that groups are on both nodes


class Acme:
    """A project of a cluster: its topic, and a load with keys. Make the producer after the first spec is in effect:
    an existing one receives the topic later, and refuses earlier puts.
    """

    def __init__(self, cluster, project="acme"):
        self.cluster, self.project, self.count = cluster, project, 0
        self.keys = {}  # id -> project, key and priority

    async def put_spec(self, **fields):
        await self.cluster.etcdctl_put(f"topics/{self.project}", json.dumps({"spread": SPREAD, **fields}).encode())

        def in_effect():
            found = self.seen()
            return found if found and found.topic.qps == fields["qps"] and not found.deleted else None

        return await until(in_effect, 30, f"{fields} to be in effect")

    def seen(self):
        """The accepted topic, as the watch reported it."""
        item = self.cluster.history.keys.get(f"accepted/{self.project}")
        return None if item is None else decode_accepted(item.value)

    async def accepted(self):
        item = await self.cluster.etcd.get(f"/evenlane/online/accepted/{self.project}")
        return None if item is None else decode_accepted(item.value)

    async def put(self, producer, count, rate, **options):
        """Put `count` messages in order, `rate` each second."""
        clock = asyncio.get_running_loop().time
        start, slice_ = clock(), max(1, rate // 20)
        for first in range(0, count, slice_):
            puts = []
            for _ in range(min(slice_, count - first)):
                own, key = f"{self.project}-{self.count}", f"k{self.count % KEYS}"
                self.count += 1
                self.keys[own] = (self.project, key, "mid")
                puts.append(Put(self.project, b"", key=key, id=own, **options))
            await self.cluster.put(producer, puts)
            await asyncio.sleep(max(0.0, start + (first + slice_) / rate - clock()))

    def waiting(self):
        return len(self.cluster.acknowledged) - len(self.cluster.ids())

    async def drained(self, timeout=60):
        await until(lambda: not self.seen().draining, timeout, "the removed groups to be collected")


def cluster_of(folder):
    """The product's own groups: 50 QPS desired, at most 150. A put may take 2 s."""
    return ProcessCluster(folder, group_qps=50, max_group_qps=150, duplicate_window=2)


def place(group):
    return partition_of("acme", group, SPREAD, PARTITIONS, "hashed")


def check_once(cluster):
    """L, D: no process died, so each message is handled exactly once."""
    handled = Counter(cluster.ids())
    assert [] == cluster.refused
    assert cluster.acknowledged.keys() == handled.keys()
    assert [] == [own for own, count in handled.items() if count > 1]


async def test_groups_follow_the_quota_under_load(tmp_path):
    """E3, Q: 100, 400, 50 QPS make 2, 8 and 1 groups. The backlog of the seven removed groups is handled first."""
    async with cluster_of(tmp_path) as cluster:
        await cluster.start("a", "b", concurrency=16)
        await cluster.owned_by(*cluster.nodes)
        acme = Acme(cluster)
        assert 2 == (await acme.put_spec(qps=100)).active
        producer = await cluster.producer()
        await acme.put(producer, 450, 150)
        assert 8 == (await acme.put_spec(qps=400, ack_wait=600)).active
        held = {"headers": {"order": "held"}}  # it fills all slots, so that a backlog waits until `forgive`
        await acme.put(producer, 300, 1_000, **held)
        lowered = await acme.put_spec(qps=50, ack_wait=600)
        assert (1, tuple(range(1, 8))) == (lowered.active, lowered.draining)
        assert acme.waiting() > 100, "no message waits, so this test shows nothing"
        reported, why = await asyncio.gather(
            patiently(cluster, "topics", "get", "acme"), patiently(cluster, "why", "acme")
        )
        assert list(range(1, 8)) == reported["in_force"]["draining"]
        waits = sum(part["waiting"] for part in why["priorities"])
        _log.info("asked while its groups drain: %d wait, by why %d", acme.waiting(), waits)
        assert waits > 0
        before = len(cluster.acknowledged)
        await acme.put(producer, 50, 50)
        await cluster.put(producer, [Put("acme", b"", id=f"robin-{number}") for number in range(10)])
        fresh = {cluster.acknowledged[own][0] for own in list(cluster.acknowledged)[before:]}
        assert {f"LANES_online_{place(0)}"} == fresh
        assert (await acme.accepted()).draining, "groups with messages were removed"
        since = now_ns()  # X4: the change is in effect by now
        forgive(cluster.nodes[0].ledger)
        await cluster.handled(timeout=90)
        most = most_in_a_second(cluster.entries(), since)
        await acme.drained()
        check_once(cluster)
        _log.info("at 50 QPS, while seven groups drain: %d in a second at the most", most)
        assert most <= 1.1 * 50 + lowered.topic.burst + len(cluster.nodes)
        assert (1, ()) == ((now := await acme.accepted()).active, now.draining)
        await late_put(cluster)
        for node in cluster.nodes:
            assert 0 == await node.stop()
        check_once(cluster)


async def late_put(cluster):
    """L: a client that knows the formulas, and an old number of groups, puts to removed groups."""
    client = await nats.connect(cluster.servers.nats.url)
    for group in (3, 7, 4_711):
        for number in range(10):
            subject, own = f"lanes.online.{place(group)}.acme.{group}.mid", f"late-{group}-{number}"
            ack = await client.jetstream().publish(subject, b"", headers={"Nats-Msg-Id": f"acme:{own}"})
            cluster.acknowledged[own] = (ack.stream, ack.seq)
    await client.close()
    await cluster.handled()


@pytest.mark.full
async def test_group_with_delayed_messages_stays(tmp_path):
    """K1: whatever the hour; empty groups are removed meanwhile."""
    async with cluster_of(tmp_path) as cluster:
        await cluster.start("a", "b")
        acme = Acme(cluster)
        await acme.put_spec(qps=200)
        producer = await cluster.producer()
        key = next(f"key-{number}" for number in range(100) if group_of(f"key-{number}", 4) == 2)
        await producer.put("acme", b"", key=key, delay=86_400 * 300, id="far")
        await producer.put("acme", b"", key=key, delay=12, id="near")
        cluster.acknowledged["near"] = ("", 0)
        await acme.put_spec(qps=50)

        await until(lambda: (2,) == acme.seen().draining, 60, "the empty groups to go")
        await cluster.handled("near")
        assert (2,) == (await acme.accepted()).draining
        assert 1 == (await evenlane(cluster, "backlog", "cancel", "acme", "far"))["cancelled"]
        await acme.drained(90)


async def test_next_leader_removes_draining_groups(tmp_path):
    """L, D: the leader dies while groups drain. The next one removes them; only the dead node's messages repeat."""
    async with cluster_of(tmp_path) as cluster:
        await cluster.start("a", "b", concurrency=16)
        await cluster.owned_by(*cluster.nodes)
        acme = Acme(cluster)
        await acme.put_spec(qps=400, ack_wait=600)
        producer = await cluster.producer()
        await acme.put(producer, 500, 2_000, headers={"order": "held"})
        lowered = await acme.put_spec(qps=100, ack_wait=600)
        assert (tuple(range(2, 8)), True) == (lowered.draining, acme.waiting() > 100)
        dead = cluster.newest(cluster.history.leader)
        pid = dead.pid
        await dead.kill()
        forgive(dead.ledger)
        await cluster.handled(timeout=60)
        await acme.drained()
        assert ([], set()) == (cluster.refused, never_handled(cluster.acknowledged, cluster.entries()))
        check_repeats(cluster.entries(), *crashes(cluster.entries(), [pid]))


@pytest.mark.parametrize("how", [pytest.param("drain", marks=pytest.mark.full), "purge"])
async def test_changes_of_the_quota_keep_key_order(tmp_path, how):
    """K6: an ordered topic keeps its groups while its quota changes, and gets new ones after a drain. P12: another
    topic is removed when it is empty.
    """
    async with cluster_of(tmp_path) as cluster:
        await cluster.start("a", "b", concurrency=16)
        await cluster.owned_by(*cluster.nodes)
        acme = Acme(cluster)
        await acme.put_spec(qps=100, ordered=True)
        producer = await cluster.producer()
        load = {"rate": 150, "headers": {"order": "sleep 0.01"}}
        groups = []
        for qps in (100, 300, 50, 250):
            groups.append((await acme.put_spec(qps=qps, ordered=True)).active)
            await acme.put(producer, 200, **load)
        assert [2, 2, 2, 2] == groups
        await patiently(cluster, "topics", "drain", "acme")
        reported = await patiently(cluster, "topics", "set", "acme", "--state", "active", "--qps", "400")
        assert 8 == reported["in_force"]["active"]
        await acme.put(producer, 400, **load)
        await patiently(cluster, "topics", "drain", "acme")
        reported = await patiently(cluster, "topics", "set", "acme", "--state", "active", "--qps", "50")
        assert (1, list(range(1, 8))) == (reported["in_force"]["active"], reported["in_force"]["draining"])
        await acme.put(producer, 100, **load)
        await cluster.handled(timeout=60)
        await acme.drained()
        check_once(cluster)
        assert acme.count == check_key_order(cluster.entries(), acme.keys)
        await delete(cluster, how)
        for node in cluster.nodes:
            assert 0 == await node.stop()
        assert {1} == {*Counter(cluster.ids()).values()}


async def delete(cluster, how):
    """P12: a deleted topic stays, paused, until its messages are handled or dropped on purpose; then it is removed."""
    handled, bolt = len(cluster.ids()), Acme(cluster, "bolt")
    await bolt.put_spec(qps=200, state="paused")
    await bolt.put(await cluster.producer(), 100, 1_000)
    await evenlane(cluster, "topics", "delete", "bolt")
    deleted = await bolt.accepted()
    assert (True, "paused", 100) == (deleted.deleted, deleted.topic.state, bolt.waiting())
    if how == "purge":
        await patiently(cluster, "backlog", "purge", "bolt", "--yes")
    else:
        await patiently(cluster, "topics", "drain", "bolt")
        await cluster.handled()
        await evenlane(cluster, "topics", "delete", "bolt")

    await until(lambda: bolt.seen() is None, 60, "the topic to go")
    assert handled + (100 if how == "drain" else 0) == len(cluster.ids())
