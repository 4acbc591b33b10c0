"""Membership on etcd in memory: plans, owners, lost answers, and nodes that leave."""

import asyncio

from evenlane.ring.membership.phase import Phase
from tests.support.membership_cluster import MembershipCluster, key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.cluster.ownership.owner_keys import owner_epoch


class TestOwning:
    async def test_plan_is_carried_out_and_confirmed(self, cluster):
        """Z5."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert {0: "a", 1: "a", 2: "b"} == await cluster.owners()
        await until(lambda: a.carried_out and b.carried_out)
        assert ([(2, 1)], [(1, 1)]) == (a.carried_out, b.carried_out)

        async def are_confirmed():
            return all([await cluster.client.get(key("done", name)) for name in "ab"])

        await until(are_confirmed)

    async def test_owner_key_has_theowner_epoch(self, cluster):
        """O."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: owner_epoch(cluster, 0))
        assert a.host.open_now[0] == await owner_epoch(cluster, 0)
        assert (await cluster.client.get(key("owners", 0))).create_revision == await owner_epoch(cluster, 0)

    async def test_owner_key_gets_the_epoch_after_an_etcd_outage(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.client.cut()
        await until(lambda: a.membership.unwritten == 0)
        a.client.heal()
        await until(lambda: owner_epoch(cluster, 0))

    async def test_previous_owner_key_is_deleted_before_the_next_is_created(self, cluster):
        """Z1: the next owner opens after the previous one has stopped and settled."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        await until(lambda: owner_epoch(cluster, 1), what="its key to be written once more, with the epoch")
        before = len(cluster.changes_of("owners"))
        await cluster.own(a=[0], b=[1, 2])
        changes = [kind for kind, name, _ in cluster.changes_of("owners")[before:] if name == "1"]
        assert ["delete", "put"] == changes[:2]
        assert [("stop", 1), ("hand over", 1)] == a.host.calls[-2:]
        assert ("open", 1) == b.host.calls[-1]

    async def test_host_expects_more_partitions_from_the_plan_on(self, cluster):
        """Z6: partitions that another node still serves count, so that no backlog delays them."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert (False, False) == (a.host.is_expecting, b.host.is_expecting)
        b.host.opening.clear()
        await cluster.plan(a=[0], b=[1, 2])
        await until(lambda: ("open", 1) in b.host.calls)
        assert (False, True) == (a.host.is_expecting, b.host.is_expecting)
        b.host.opening.set()
        await until(lambda: not b.host.is_expecting)
        assert {1, 2} == set(b.host.open_now)

    async def test_partition_is_acquired_only_once_its_key_is_gone(self, cluster):
        """Z1: no time limit replaces the release, or the end of the previous owner's lease."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        a.client.cut()
        await cluster.plan(a=[], b=[0])
        await until(lambda: b.membership.phase is Phase.WAITING)
        cluster.client.advance(59)
        for _ in range(50):
            await asyncio.sleep(0)
        assert [] == b.owned
        cluster.client.advance(1)  # ends both leases
        await until(lambda: 0 in b.membership.member.known or b.lost)

    async def test_nodes_can_swap_partitions(self, cluster):
        """Z1: each waits for the other's release only."""
        _, _ = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2, 3])
        await cluster.own(a=[2, 3], b=[0, 1])
        assert {0: "b", 1: "b", 2: "a", 3: "a"} == await cluster.owners()

    async def test_older_plan_changes_nothing(self, cluster):
        """Z5."""
        a = await cluster.join("a")
        cluster.generation = 5
        await cluster.own(a=[0])
        cluster.generation = 3
        await cluster.plan(a=[1, 2])
        await until(lambda: a.membership.member.plan.stale)
        assert [0] == a.owned

    async def test_last_of_many_plans_is_carried_out(self, cluster):
        """Z5: earlier ones may be skipped, or half carried out."""
        nodes = await cluster.join("a", "b", "c")
        for turn in range(30):
            shifted = {node.name: [p for p in range(4) if (p + turn) % 3 == n] for n, node in enumerate(nodes)}
            await cluster.plan(**shifted)
            for _ in range(turn % 4):
                await asyncio.sleep(0)
        await cluster.own(**shifted)
        assert {p: name for name, mine in shifted.items() for p in mine} == await cluster.owners()


class TestLosing:
    async def test_watch_replaces_a_lost_answer(self, cluster):
        a = await cluster.join("a")
        a.client.lose = {"plan"}  # the claim compares the plan's revision
        await cluster.own(a=[0, 1])
        assert {0: "a", 1: "a"} == await cluster.owners()

    async def test_deleted_owner_key_ends_the_work_and_is_acquired_again(self, cluster):
        """O."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        epoch = a.host.open_now[0]
        await cluster.client.delete(key("owners", 0))
        await until(lambda: a.host.open_now.get(0, epoch) > epoch)
        await until(lambda: ("drop", 0) in a.host.calls)
        assert [] == a.fatal

    async def test_takeover_ends_if_the_plan_changes(self, cluster):
        a, _ = await cluster.join("a", "b")
        a.host.opening.clear()
        await cluster.plan(a=[0])
        await until(lambda: ("open", 0) in a.host.calls)
        await cluster.own(a=[], b=[0])
        assert {} == a.host.open_now

    async def test_partition_is_not_opened_after_it_was_stopped(self, cluster):
        """O: the plan changes in the same turn of the loop in which the takeover would continue."""
        a = await cluster.join("a")
        a.client.gates["held"] = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.client.waiting)
        await cluster.plan(a=[])
        a.client.gates["held"].set()
        await until(lambda: (0, 2) in a.carried_out)
        assert ("stop", 0) in a.host.calls
        assert ("open", 0) not in a.host.calls[a.host.calls.index(("stop", 0)) :]

    async def test_late_claim_of_an_older_plan_is_refused(self, cluster):
        """Z5: it doesn't delay the owner in the newer plan."""
        a, _ = await cluster.join("a", "b")
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.membership.member.known)
        await cluster.plan(a=[])
        await until(lambda: not a.membership.member.plan.desired)
        gate.set()
        await until(lambda: not a.membership.member.is_busy)
        assert [] == cluster.changes_of("owners")
        await cluster.own(b=[0])

    async def test_end_of_the_lease_ends_the_session(self, cluster):
        """O, fault 9."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await cluster.client.revoke(a.lease.id)
        await until(lambda: ("drop", 0) in a.host.calls)
        assert {} == a.host.open_now
        assert [] == a.fatal
        await until(lambda: a.lost, what="its next claim to be refused")

    async def test_partitions_of_a_dead_node_go_to_another(self, cluster):
        """P4."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[1])
        await a.crash()
        await cluster.plan(b=[0, 1])
        await until(lambda: [0, 1] == b.owned)


class TestLeaving:
    async def test_leaving_node_waits_for_the_plan_and_its_handlers(self, cluster):
        """P5."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        a.host.run(0, 5)
        a.leaving = True
        leaving = asyncio.ensure_future(a.membership.leave(30, 30))
        await cluster.plan(a=[], b=[0])
        await until(lambda: [0] == b.owned)
        assert not leaving.done()
        a.host.end(0, 5)
        assert await leaving

    @in_virtual_time
    async def test_last_node_waits_for_no_successor(self):
        """P5: a node that leaves at the same time is none."""
        async with MembershipCluster() as cluster:
            a, b = await cluster.join("a", "b")
            await cluster.own(a=[0, 1, 2, 3], b=[])
            began = asyncio.get_running_loop().time()
            b.leaving = a.leaving = True
            await b.membership.leave(0, 1)
            leaving = asyncio.ensure_future(a.membership.leave(30, 30))
            await cluster.plan(a=[])
            assert await leaving
            assert asyncio.get_running_loop().time() - began < 0.5

    async def test_leaving_node_releases_by_itself_without_a_leader(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        assert await a.membership.leave(0.05, 30)
        assert {} == await cluster.owners()

    async def test_wait_for_a_hanging_handler_is_bounded(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        assert not await a.membership.leave(0.05, 0.3)
