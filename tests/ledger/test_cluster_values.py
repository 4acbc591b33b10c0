"""Values in etcd that nobody of ours has written: anyone with `etcdctl` can."""

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import PARTITIONS, TTL_S, ProcessCluster, plan
from tests.ledger.process import NodeProcess
from tests.ledger.promises import begun_again, begun_too_late, never_handled
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

ALL = range(PARTITIONS)
NO_RECORDS = {
    "cut off": b'{"generation": 7, "partitions": [1',
    "empty": b"",
    "no text": b"\xff\x00\xfe",
    "another type": b"[1, 2]",
    "a fraction": b'{"generation": 1.5, "partitions": []}',
    "a truth": b'{"generation": true, "partitions": []}',
    "a word for a number": b'{"generation": "9", "partitions": "all"}',
    "no partitions": b'{"generation": 3}',
    "deep": b"[" * 50_000,
    "long": b'"' + b"x" * 1_200_000 + b'"',
}
WRONG_PLANS = {
    "older": plan(0, ALL),
    "newer, all partitions": plan(1_000, ALL),
    "newer, none": plan(2_000, []),
    "out of range": plan(3_000, [-1, PARTITIONS, 10**9, -(10**9), 2**70]),
    "one twice": plan(4_000, [3, 3, 3]),
    "beyond 64 bits": plan(10**30, ALL),
}


async def three(cluster: ProcessCluster) -> list[NodeProcess]:
    nodes = await cluster.start("a", "b", "c")
    await cluster.topics(*cluster.projects)
    await cluster.carried_out(*nodes)
    return nodes


async def healed(cluster: ProcessCluster, key: str, revision: int) -> None:
    """Wait until what was put at this revision has been replaced."""
    keys = cluster.history.keys
    what = f"the value of {key} to be replaced"
    await until(lambda: key in keys and keys[key].mod_revision > revision, 5, what)


def logged(nodes: list[NodeProcess], text: str) -> int:
    return sum(node.logged(text) for node in nodes)


def check_undisturbed(cluster: ProcessCluster) -> None:
    entries = cluster.entries()
    assert set() == never_handled(cluster.acknowledged, entries)
    assert [] == begun_again(entries)
    assert [] == begun_too_late(entries)


async def test_plans_that_are_none_or_wrong_are_written_anew(tmp_path):
    """Z5, O: whatever a node is told to own, it takes from nobody; nothing is lost or doubled, and the leader heals
    each. What is no plan at all is named in the log.
    """
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        leader = cluster.history.leader
        for target in (leader, next(node.name for node in nodes if node.name != leader)):
            key = f"plan/{target}"
            async with cluster.load() as load:
                for value in (*NO_RECORDS.values(), *WRONG_PLANS.values()):
                    before = logged(nodes, f"/evenlane/online/{key}")
                    await healed(cluster, key, await cluster.etcdctl_put(key, value))
                    await cluster.carried_out(*nodes)
                    assert value in WRONG_PLANS.values() or logged(nodes, f"/evenlane/online/{key}") > before
                await load.reaches_all()
        check_undisturbed(cluster)
        assert all(node.running and not node.logged("joining anew") for node in nodes)


async def test_plans_are_healed_by_the_next_leader(tmp_path):
    """What was spoilt while nobody led."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        leader = cluster.named(cluster.history.leader)
        others = [node for node in nodes if node is not leader]
        await leader.kill()
        await cluster.etcdctl_put(f"plan/{others[0].name}", b"{")
        await cluster.etcdctl_put(f"plan/{others[1].name}", plan(50, [*ALL, 10**9]))
        await cluster.etcdctl_put("plan/nobody", plan(60, ALL))
        await cluster.etcdctl_put("generation", b"many")
        await cluster.carried_out(*others)
        async with cluster.load() as load:
            await load.reaches_all()
        check_undisturbed(cluster)
        assert set() == cluster.history.named("plan") - {node.name for node in others}
        assert cluster.history.value("generation")["generation"] > 60


async def test_keys_that_are_nobodys(tmp_path):
    """Owner keys of no partition, records of no hand-over, confirmations of nobody: all goes on, and the log names
    them. A registration that stands under no lease gets no partitions: no node can have written it.
    """
    named = ["owners/x", "owners/-1", f"owners/{PARTITIONS}", "owners/1000000000", "owners/10000000000", "owners/03",
             "owners/3/4", "owners/²", "owners/"]  # fmt: skip
    others = ["held/x", "held/3", "held/3/x", "held/3/1", "held/1/2/3", "held/999/1", "done/a", "done/nobody", "plan/",
              "nodes/ghost"]  # fmt: skip
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        async with cluster.load() as load:
            for key in (*named, *others):
                await cluster.etcdctl_put(key, b'{"id": 7, "lanes": [')
            await cluster.etcdctl_put("nodes/phantom", b'{"host": "h", "pid": 1, "store": true}')
            [d] = await cluster.start("d")
            await cluster.carried_out(*nodes, d)
            await load.reaches_all()
            leader = cluster.named(cluster.history.leader)
            assert 0 == await leader.stop()
            rest = [node for node in (*nodes, d) if node is not leader]
            await cluster.carried_out(*rest)
            await load.reaches_all()
        check_undisturbed(cluster)
        assert [] == [key for key in named if not logged(rest, f"/evenlane/online/{key}")]


async def test_the_registration_of_a_living_node_is_spoilt_and_deleted(tmp_path):
    """It registers again, and L holds."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        async with cluster.load() as load:
            await cluster.etcdctl_put("nodes/b", b"{")
            await until(lambda: "b" in cluster.history.nodes, 5, "b to register again")
            await cluster.carried_out(*nodes)
            await cluster.etcd.delete("/evenlane/online/nodes/b")
            await until(lambda: "b" in cluster.history.nodes, 5, "b to register again")
            await cluster.carried_out(*nodes)
            await load.reaches_all()
        check_undisturbed(cluster)


async def test_an_owner_key_deleted_by_hand(tmp_path):
    """O, L, D: the owner stops, and takes it anew under a higher epoch."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        async with cluster.load() as load:
            await load.reaches_all()
            at = now_ns()
            assert await cluster.etcd.delete("/evenlane/online/owners/3")
            await cluster.carried_out(*nodes)
            await load.reaches_all()
        entries = cluster.entries()
        assert set() == never_handled(cluster.acknowledged, entries)
        assert [] == begun_too_late(entries)
        assert len(begun_again(entries)) <= 0.2 / 0.025 + 1  # of this one partition, within a settle interval
        assert at < max(reign.created for reign in cluster.history.reigns() if reign.partition == 3)


async def test_an_owner_key_that_was_written_over_does_not_outlive_its_owner(tmp_path):
    """E7: such a put takes it out of the lease; when the owner is killed, others own the partition all the same."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        victim = next(node for node in nodes if node.name != cluster.history.leader)
        rest = [node for node in nodes if node is not victim]
        first, second, *_ = cluster.history.owned(victim.name)
        async with cluster.load() as load:
            await load.reaches_all()
            for number, value in ((first, b"{"), (second, b'{"id": "somebody", "epoch": 5}')):
                revision = await cluster.etcdctl_put(f"owners/{number}", value)
                await healed(cluster, f"owners/{number}", revision)
            await victim.kill()
            await until(lambda: not cluster.history.owned(victim.name), 2 * TTL_S + 5, "the lease's end")
            await cluster.carried_out(*rest)
            await load.reaches_all()
        assert set() == never_handled(cluster.acknowledged, cluster.entries())
        assert [] == begun_too_late(cluster.entries())


async def test_a_leaders_key_that_was_written_over_does_not_outlive_the_leader(tmp_path):
    """P4: such a put takes it out of the lease; when the leader is killed, another leads all the same."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        revision = await cluster.etcdctl_put("leader", b"me")
        await healed(cluster, "leader", revision)
        leader = cluster.named(cluster.history.leader)
        rest = [node for node in nodes if node is not leader]
        await leader.kill()
        await cluster.carried_out(*rest)
