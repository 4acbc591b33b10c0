"""Tests of foreign values in etcd, which anyone with `etcdctl` can write."""

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.cluster import EVERY_S, PARTITIONS, ProcessCluster, plan
from tests.ledger.process import NodeProcess
from tests.ledger.promises import begun_again, begun_too_late, never_handled
from tests.support.until import until

pytestmark = pytest.mark.real

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
    await cluster.owned_by(*nodes)
    return nodes


async def healed(cluster: ProcessCluster, key: str, revision: int) -> None:
    """Wait until the value of this revision has been replaced."""
    keys = cluster.history.keys
    what = f"the value of {key} to be replaced"
    await until(lambda: key in keys and keys[key].mod_revision > revision, what=what)


def logged(nodes: list[NodeProcess], text: str) -> int:
    return sum(node.logged(text) for node in nodes)


def check_undisturbed(cluster: ProcessCluster) -> None:
    entries = cluster.entries()
    assert set() == never_handled(cluster.acknowledged, entries)
    assert [] == begun_again(entries)
    assert [] == begun_too_late(entries)


async def test_foreign_values_disturb_nothing(tmp_path):
    """Z5, F4, O, L: whatever foreign plans, registrations and other keys say, nothing is lost or repeated."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await three(cluster)
        await rewrite_plans_and_registrations(cluster, nodes)
        await skip_unknown_keys(cluster, nodes)
        check_undisturbed(cluster)


async def rewrite_plans_and_registrations(cluster: ProcessCluster, nodes: list[NodeProcess]) -> None:
    """Z5: whatever its plan says, a node takes no other's partitions, and the leader rewrites each plan. A value that
    isn't a plan is named in the log. A node whose registration is overwritten or deleted registers again.
    """
    leader = cluster.history.leader
    for target in (leader, next(node.name for node in nodes if node.name != leader)):
        key = f"plan/{target}"
        async with cluster.load() as load:
            for value in (*NO_RECORDS.values(), *WRONG_PLANS.values()):
                before = logged(nodes, f"/evenlane/online/{key}")
                await healed(cluster, key, await cluster.etcdctl_put(key, value))
                await cluster.owned_by(*nodes)
                assert value in WRONG_PLANS.values() or logged(nodes, f"/evenlane/online/{key}") > before
            await load.reaches_all()
    assert all(node.running and not node.logged("joining anew") for node in nodes)
    async with cluster.load() as load:
        await cluster.etcdctl_put("nodes/b", b"{")
        await until(lambda: "b" in cluster.history.nodes, what="b to register again")
        await cluster.owned_by(*nodes)
        await cluster.etcd.delete("/evenlane/online/nodes/b")
        await until(lambda: "b" in cluster.history.nodes, what="b to register again")
        await cluster.owned_by(*nodes)
        await load.reaches_all()


async def skip_unknown_keys(cluster: ProcessCluster, nodes: list[NodeProcess]) -> None:
    """F4: owner keys of no partition, records of no handoff, confirmations of no node: all goes on, and the log names
    them. A registration without a lease gets no partitions: no node can have written it.
    """
    named = ["owners/x", "owners/-1", f"owners/{PARTITIONS}", "owners/1000000000", "owners/10000000000", "owners/03",
             "owners/3/4", "owners/²", "owners/"]  # fmt: skip
    others = ["held/x", "held/3", "held/3/x", "held/3/1", "held/1/2/3", "held/999/1", "done/a", "done/nobody", "plan/",
              "nodes/ghost"]  # fmt: skip
    async with cluster.load() as load:
        for key in (*named, *others):
            await cluster.etcdctl_put(key, b'{"id": 7, "lanes": [')
        await cluster.etcdctl_put("nodes/phantom", b'{"host": "h", "pid": 1, "store": true}')
        [d] = await cluster.start("d")
        await cluster.owned_by(*nodes, d)
        await load.reaches_all()
        leader = cluster.newest(cluster.history.leader)
        assert 0 == await leader.stop()
        rest = [node for node in (*nodes, d) if node is not leader]
        await cluster.owned_by(*rest)
        await load.reaches_all()
    assert [] == [key for key in named if not logged(rest, f"/evenlane/online/{key}")]


async def test_keys_of_leaders_and_owners_are_replaced(tmp_path):
    """O, L, D, E7, P4, Z5: keys that were deleted or overwritten, while all nodes live, and when one dies."""
    async with ProcessCluster(tmp_path) as cluster:
        nodes = await cluster.start("a", "b", "c", "d")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(*nodes)
        nodes = await repair_overwritten_plans(cluster, nodes)
        check_undisturbed(cluster)
        await replace_owner_key(cluster, nodes)
        await replace_owner_keys_of_dead_node(cluster, nodes)
        assert set() == never_handled(cluster.acknowledged, cluster.entries())
        assert [] == begun_too_late(cluster.entries())


async def repair_overwritten_plans(cluster: ProcessCluster, nodes: list[NodeProcess]) -> list[NodeProcess]:
    """P4, Z5: an overwritten leader key is under no lease. When the leader is killed, another node leads all the same,
    and rewrites plans that were overwritten while there was no leader. Return the other nodes.
    """
    await healed(cluster, "leader", await cluster.etcdctl_put("leader", b"me"))
    leader = cluster.newest(cluster.history.leader)
    others = [node for node in nodes if node is not leader]
    await leader.kill()
    await cluster.etcdctl_put(f"plan/{others[0].name}", b"{")
    await cluster.etcdctl_put(f"plan/{others[1].name}", plan(50, [*ALL, 10**9]))
    await cluster.etcdctl_put("plan/nobody", plan(60, ALL))
    await cluster.etcdctl_put("generation", b"many")
    await cluster.owned_by(*others)
    async with cluster.load() as load:
        await load.reaches_all()
    assert set() == cluster.history.named("plan") - {node.name for node in others}
    assert cluster.history.value("generation")["generation"] > 60
    return others


async def replace_owner_key(cluster: ProcessCluster, nodes: list[NodeProcess]) -> None:
    """O, L, D: the owner of a deleted key stops, and takes the partition again under a higher epoch."""
    async with cluster.load() as load:
        await load.reaches_all()
        at = now_ns()
        assert await cluster.etcd.delete("/evenlane/online/owners/3")
        await cluster.owned_by(*nodes)
        await load.reaches_all()
    entries = list(cluster.entries())
    assert [] == begun_too_late(entries)
    assert len(begun_again(entries)) <= 0.2 / EVERY_S + 1  # of this one partition, within a settle interval
    assert at < max(reign.created for reign in cluster.history.reigns() if reign.partition == 3)


async def replace_owner_keys_of_dead_node(cluster: ProcessCluster, nodes: list[NodeProcess]) -> None:
    """E7: an overwritten key is under no lease, but doesn't outlive its owner: when the owner is killed, others own the
    partition.
    """
    victim = next(node for node in nodes if node.name != cluster.history.leader)
    rest = [node for node in nodes if node is not victim]
    first, second, *_ = cluster.history.owned(victim.name)
    async with cluster.load() as load:
        await load.reaches_all()
        for number, value in ((first, b"{"), (second, b'{"id": "somebody", "epoch": 5}')):
            revision = await cluster.etcdctl_put(f"owners/{number}", value)
            await healed(cluster, f"owners/{number}", revision)
        await victim.kill()
        await until(lambda: not cluster.history.owned(victim.name), 30, "the lease's end")
        await cluster.owned_by(*rest)
        await load.reaches_all()
