"""Membership on etcd in memory: who owns what when, and what becomes of lost answers and values that are none."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.errors import UnknownEpoch
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import Put
from evenlane.ring.membership.phase import Phase
from evenlane.ring.membership.records import OwnerRecord, PastOwner, decode
from tests.support.membership_cluster import MembershipCluster, RecordingHost, key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

SECOND = 1_000_000_000
LEASE = 9_999  # of an owner that etcd has forgotten


class TestOwning:
    async def test_a_plan_is_carried_out_and_confirmed(self, cluster):
        """Z5."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert {0: "a", 1: "a", 2: "b"} == await cluster.owners()
        await until(lambda: a.carried_out and b.carried_out)
        assert ([(2, 1)], [(1, 1)]) == (a.carried_out, b.carried_out)

        async def done():
            return [(await cluster.client.get(key("done", name))) for name in "ab"]

        await until(lambda: _all(done()))

    async def test_the_epoch_stands_in_the_owner_key(self, cluster):
        """O: surfaces.md, for whoever reads it."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: _epoch(cluster, 0))
        assert a.host.open_now[0] == await _epoch(cluster, 0)
        assert (await cluster.client.get(key("owners", 0))).create_revision == await _epoch(cluster, 0)

    async def test_even_if_etcd_was_away_when_it_was_to_be_written(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.client.cut()
        await until(lambda: a.membership.unwritten == 0)
        a.client.heal()
        await until(lambda: _epoch(cluster, 0))

    async def test_the_old_owners_key_goes_before_the_new_ones_comes(self, cluster):
        """Z1: and the new one opens after the old one has stopped and settled."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        await until(lambda: _epoch(cluster, 1), what="its key to be written once more, with the epoch")
        before = len(cluster.changes_of("owners"))
        await cluster.own(a=[0], b=[1, 2])
        changes = [kind for kind, name, _ in cluster.changes_of("owners")[before:] if name == "1"]
        assert ["delete", "put"] == changes[:2]
        assert [("stop", 1), ("hand over", 1)] == a.host.calls[-2:]
        assert ("open", 1) == b.host.calls[-1]

    async def test_the_node_knows_of_what_comes_from_the_plan_on(self, cluster):
        """Z6: partitions that another node still serves count, so that no backlog gets in their way."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert (False, False) == (a.host.expects_more, b.host.expects_more)
        b.host.opening.clear()
        await cluster.plan(a=[0], b=[1, 2])
        await until(lambda: ("open", 1) in b.host.calls)
        assert (False, True) == (a.host.expects_more, b.host.expects_more)
        b.host.opening.set()
        await until(lambda: not b.host.expects_more)
        assert {1, 2} == set(b.host.open_now)

    async def test_nobody_waits_for_a_clock(self, cluster):
        """Z1: as long as the old one hasn't released, the new one doesn't own, however long it takes."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        a.client.cut()
        await cluster.plan(a=[], b=[0])
        await until(lambda: b.membership.phase is Phase.WAITING)
        cluster.client.advance(59)
        for _ in range(50):
            await asyncio.sleep(0)
        assert [] == b.owned
        cluster.client.advance(1)  # the lease of both; b's membership isn't told of its own
        await until(lambda: 0 in b.membership.member._claims or 0 not in b.membership.member._owners)

    async def test_swapped_partitions_come_to_rest(self, cluster):
        """Z1: each waits for the other, and for nothing more."""
        _, _ = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2, 3])
        await cluster.own(a=[2, 3], b=[0, 1])
        assert {0: "b", 1: "b", 2: "a", 3: "a"} == await cluster.owners()

    async def test_a_plan_that_is_older_changes_nothing(self, cluster):
        """Z5."""
        a = await cluster.join("a")
        cluster.generation = 5
        await cluster.own(a=[0])
        cluster.generation = 3
        await cluster.plan(a=[1, 2])
        await until(lambda: a.membership.member.stale_plans)
        assert [0] == a.owned

    async def test_many_plans_in_a_row_end_in_the_last(self, cluster):
        """Z5: those between may be passed over, or half carried out."""
        nodes = await cluster.join("a", "b", "c")
        for turn in range(30):
            shifted = {node.name: [p for p in range(4) if (p + turn) % 3 == n] for n, node in enumerate(nodes)}
            await cluster.plan(**shifted)
            for _ in range(turn % 4):
                await asyncio.sleep(0)
        await cluster.own(**shifted)
        assert {p: name for name, mine in shifted.items() for p in mine} == await cluster.owners()


class TestLosing:
    async def test_an_answer_that_is_lost_is_made_good_by_the_watch(self, cluster):
        a = await cluster.join("a")
        a.client.lose = {"plan"}  # what is asked names the plan's revision
        await cluster.own(a=[0, 1])
        assert {0: "a", 1: "a"} == await cluster.owners()

    async def test_a_key_that_is_deleted_by_hand_ends_the_work_and_is_acquired_anew(self, cluster):
        """O."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        epoch = a.host.open_now[0]
        await cluster.client.delete(key("owners", 0))
        await until(lambda: a.host.open_now.get(0, epoch) > epoch)
        await until(lambda: ("drop", 0) in a.host.calls)
        assert [] == a.fatal

    async def test_a_take_over_that_is_not_wanted_any_more_is_given_up(self, cluster):
        a, _ = await cluster.join("a", "b")
        a.host.opening.clear()
        await cluster.plan(a=[0])
        await until(lambda: ("open", 0) in a.host.calls)
        await cluster.own(a=[], b=[0])
        assert {} == a.host.open_now

    async def test_none_begins_after_it_was_stopped(self, cluster):
        """O: the plan changes in the very turn of the loop in which the take-over would go on."""
        a = await cluster.join("a")
        a.client.gates["held"] = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.client.waiting)
        await cluster.plan(a=[])
        a.client.gates["held"].set()
        await until(lambda: (0, 2) in a.carried_out)
        assert ("stop", 0) in a.host.calls
        assert ("open", 0) not in a.host.calls[a.host.calls.index(("stop", 0)) :]

    async def test_one_that_is_late_is_refused_when_the_plan_has_changed(self, cluster):
        """Z5: what was asked for by an older plan doesn't stand in the way of the newer one's owner."""
        a, _ = await cluster.join("a", "b")
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.membership.member._claims)
        await cluster.plan(a=[])
        await until(lambda: not a.membership.member.desired)
        gate.set()
        await until(lambda: not a.membership.member.busy)
        assert [] == cluster.changes_of("owners")
        await cluster.own(b=[0])

    async def test_a_lease_that_ends_ends_the_term(self, cluster):
        """O, fault 9."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await cluster.client.revoke(a.lease.id)
        await until(lambda: ("drop", 0) in a.host.calls)
        assert {} == a.host.open_now
        assert [] == a.fatal
        await until(lambda: a.lost, what="it tries to own it again, and is told")

    async def test_a_dead_nodes_partitions_go_to_others(self, cluster):
        """P4."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[1])
        await a.crash()
        await cluster.plan(b=[0, 1])
        await until(lambda: [0, 1] == b.owned)


class TestLeaving:
    async def test_one_that_leaves_waits_for_the_plan_and_for_what_runs(self, cluster):
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
    async def test_the_last_one_waits_for_no_successor(self):
        """P5: nobody will serve what it gives up, whoever leaves beside it."""
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

    async def test_without_a_leader_it_releases_by_itself(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        assert await a.membership.leave(0.05, 30)
        assert {} == await cluster.owners()

    async def test_what_hangs_is_not_waited_for_for_ever(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        assert not await a.membership.leave(0.05, 0.3)


class TestSpoilt:
    """Issue 4: values that are none are passed over, counted and named in the log."""

    @pytest.mark.parametrize(
        "raw",
        [b"", b"[]", b"\xff\xfe", b'{"generation": "7", "partitions": []}', b"[" * 100_000, b"{" + b" " * (1 << 20)],
        ids=["empty", "a list", "no text", "a wrong type", "deep", "large"],
    )
    async def test_plans(self, cluster, raw):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        with capture_logs() as logs:
            await cluster.client.put(key("plan", "a"), raw)
            await until(lambda: a.records.skipped == 1)
        assert [True] == [key("plan", "a") in entry["reason"] for entry in logs if "reason" in entry]
        assert [0] == a.owned
        await cluster.own(a=[0, 1])
        assert [] == a.fatal

    async def test_partitions_that_there_are_not(self, cluster):
        a = await cluster.join("a")
        await cluster.plan(a=[-1, 0, 4, 1 << 70])
        await until(lambda: [0] == a.owned)
        assert a.membership.member.done == a.membership.member.generation > 0

    @pytest.mark.parametrize("name", ["x", "-1", "04", "4", "٣", "1/2", "", "9" * 5_000], ids=range(8))
    async def test_owners(self, cluster, name):
        a = await cluster.join("a")
        await cluster.client.put(key("owners", name), b"\xff")
        await cluster.own(a=[0, 1, 2, 3])
        await until(lambda: a.records.skipped >= 1)
        await cluster.client.delete(key("owners", name))
        await cluster.own(a=[0, 1, 2])

    async def test_an_owner_key_that_was_overwritten_is_again_under_its_owners_lease(self, cluster):
        """Z1: else it would outlive its owner, and the partition would be nobody's for ever."""
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 0), b"\xff")
        await until(lambda: _epoch(cluster, 0))
        assert a.lease.id == (await cluster.client.get(key("owners", 0))).lease
        assert [0] == a.owned
        await a.crash()
        await cluster.own(b=[0])

    @pytest.mark.parametrize("answered", ["late", "at once"])
    async def test_one_that_is_overwritten_while_it_is_released(self, cluster, answered):
        """Z1, O: what still runs is named all the same, and the next owner has the partition."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[], b=[0])
        await until(lambda: ("hand over", 0) in a.host.calls)
        a.client.deaf = answered == "at once"
        await cluster.client.put(key("owners", 0), b"\xff")
        gate.set()
        await until(lambda: [0] == b.owned, 3)
        assert [[5]] == [record.lanes["lanes"].running for record in b.host.held[0]]
        assert [] == a.lost

    @pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b'{"id": 3}', b'{"id": "a", "lanes": {"lanes": {}}}'])
    async def test_what_is_held(self, cluster, raw):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.client.put(key("held", 0, 3), raw)
        await cluster.client.put(key("held", "x", "y"), b"{}")
        await cluster.own(a=[], b=[0])
        assert [[5]] == [record.lanes["lanes"].running for record in b.host.held[0]]
        await until(lambda: b.records.skipped >= 1)
        (item,) = [item for item in await cluster.held() if item.key.split("/")[-1] not in ("3", "y")]
        await cluster.client.put(item.key, raw, item.lease)
        a.host.end(0, 5)
        await until(lambda: b.host.changed and b.host.changed[-1].lanes["lanes"].done == [5])
        assert [] == b.fatal


async def _all(found):
    return all(await found)


def received(client):
    """Its watches have told all there is."""
    return all(watch._seen == client.store.revision and not watch._read for watch in client._watches)


async def _epoch(cluster, partition):
    item = await cluster.client.get(key("owners", partition))
    try:
        return decode(OwnerRecord, item.key, item.value).epoch
    except ValueError:
        return 0


class Reading(RecordingHost):
    """Its settle logs have these epochs, of owners that had this lease; these may serve unless `ended`."""

    def __init__(self, cluster, name, **epochs):
        super().__init__(cluster, name)
        self.logs = {int(partition[1:]): PastOwner(epoch, LEASE) for partition, epoch in epochs.items()}
        self.ended = False

    async def open(self, number, epoch, held=(), known=None, lease=0):
        log = self.logs.get(number)
        if log is not None and (log.epoch >= epoch or not (log in known or self.ended)):
            raise UnknownEpoch("as the log says", *log)
        await super().open(number, epoch, held, known)
        self.logs[number] = PastOwner(epoch, lease)


class TestEtcdGoesBack:
    """F2, F3."""

    async def test_an_epoch_is_above_that_of_the_settle_log(self, cluster):
        """O: and stands in the owner key, for all who read it."""
        host = Reading(cluster, "a", p0=9_000)
        host.ended = True
        a = await cluster.join("a", host=host)
        await cluster.own(a=[0, 1])
        assert (True, True) == (a.host.open_now[0] > 9_000, a.host.open_now[1] < 100)
        assert a.host.open_now == a.membership.epochs
        await until(lambda: _epoch(cluster, 0))
        assert a.host.open_now[0] == await _epoch(cluster, 0)
        assert [] == a.lost

    async def test_a_key_that_is_served_names_the_owners_before(self, cluster):
        """O: a node that starts later sees only this one."""
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        first = a.membership.epochs[0]
        await cluster.own(a=[], b=[0])
        await until(lambda: _epoch(cluster, 0))
        item = await cluster.client.get(key("owners", 0))
        assert PastOwner(first, a.lease.id) == decode(OwnerRecord, item.key, item.value).before[0]

    async def test_so_are_those_of_all_who_come_later(self, cluster):
        host = Reading(cluster, "a", p0=9_000)
        host.ended = True
        _, b = [await cluster.join("a", host=host), await cluster.join("b")]
        await cluster.own(a=[0], b=[])
        first = host.open_now[0]
        await cluster.own(a=[], b=[0])
        assert first < b.host.open_now[0]

    async def test_what_is_still_running_is_named_under_the_epoch(self, cluster):
        host = Reading(cluster, "a", p0=9_000)
        host.ended = True
        a = await cluster.join("a", host=host)
        await cluster.join("b")
        await cluster.own(a=[0], b=[])
        epoch = host.open_now[0]
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        (item,) = await cluster.held()
        assert item.key == key("held", 0, epoch)

    @in_virtual_time
    async def test_a_former_owner_that_may_serve_is_outlived(self):
        """O: for as long as a lease lasts, from the claim on."""
        async with MembershipCluster() as cluster:
            clock = asyncio.get_running_loop().time
            a = await cluster.join("a", ttl=1, host=Reading(cluster, "a", p0=1))
            began = clock()
            await cluster.plan(a=[0, 1])
            await until(lambda: 1 in a.owned)
            assert 0 not in a.host.open_now
            await until(lambda: 0 in a.owned)
            assert 1 <= clock() - began < 2
            await cluster.own(a=[1])
            began = clock()
            await cluster.own(a=[0, 1])
            assert clock() - began < 0.5, "this time etcd knows who it was"

    async def test_none_begins_that_is_lost_meanwhile(self, cluster):
        a = await cluster.join("a", ttl=1, host=Reading(cluster, "a", p0=1))
        await cluster.plan(a=[0])
        await until(lambda: 0 in a.membership.member.served)
        a.client.cut()
        await cluster.client.delete(key("owners", 0))
        await cluster.client.put(key("owners", 0), b"{}")
        a.client.heal()
        await until(lambda: ("drop", 0) in a.host.calls)
        assert {} == a.host.open_now

    async def test_owners_are_compared_with_what_etcd_has_for_them(self, cluster):
        """The node that serves what nobody owns, and that owns what it doesn't serve, joins anew."""
        a = await cluster.join("a", ttl=1)
        await cluster.own(a=[0])
        backup = cluster.client.store.backup()
        await cluster.own(a=[1])
        cluster.client.restore(replace(backup, revision=100))  # by etcd's own revision nobody can tell
        await until(lambda: a.lost)
        assert "etcd is at revision 100, and owner keys are as they were before" in a.lost[0]
        assert not [reason for reason in a.lost if "ended" in reason]

    async def test_what_etcd_has_beside_them_counts_as_well(self, cluster):
        a = await cluster.join("a", ttl=1)
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 3), b"{}", a.lease.id)
        await until(lambda: 3 not in a.membership.member.known, what="it to be given away, as any that isn't planned")
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 2), b"{}", a.lease.id)
        await cluster.own(a=[0, 2])
        assert ([], []) == (a.lost, a.fatal)

    async def test_the_answer_to_a_claim_shows_it_before_the_watch_does(self, cluster):
        """O: what else the node has been told isn't so any more, either."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: _epoch(cluster, 0))
        newest = cluster.client.store.revision
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0, 1])
        await until(lambda: 1 in a.membership.member.known)
        a.client.deaf = True
        cluster.client.restore(Backup())
        gate.set()
        await until(lambda: a.lost)
        assert [f"etcd is at revision 1, and owner keys are as they were before {newest}"] == a.lost

    async def test_an_answer_that_the_watch_has_overtaken_does_not(self, cluster):
        """What is told after the question may well be newer."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: _epoch(cluster, 0))
        a.client.gates["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0, 1])
        await until(lambda: a.client.waiting)
        for value in (b"{}", b"[]"):
            await cluster.client.put(key("owners", 3), value)
        await until(lambda: received(a.client))
        gate.set()
        await until(lambda: "acquire 1" not in [task.get_name() for task in asyncio.all_tasks()])
        assert ([0, 1], []) == (a.owned, a.lost)

    @staticmethod
    def torn_away(cluster, a, backup):
        """Etcd goes back to before the claim of 0, and another has it under the same epoch; `a` hears nothing."""
        store, (epoch,) = cluster.client.store, a.membership.member.epochs.values()
        a.client.deaf = True
        store.restore(backup)
        store.txn([], [Put(key("owners", 0), b"the other's", store.grant(60))], [])
        assert epoch == store.get(key("owners", 0)).create_revision
        return store.get(key("owners", 0))

    async def test_a_release_leaves_what_another_has_under_the_same_epoch(self, cluster):
        """O: what the node still runs of it isn't named there, either."""
        a = await cluster.join("a")
        await cluster.plan(a=[0])
        backup = cluster.client.store.backup()
        await until(lambda: [0] == a.owned and a.membership.unwritten == 0)
        a.client.late["owners"] = gate = asyncio.Event()
        a.host.run(0, 5)
        await cluster.plan(a=[])
        await until(lambda: ("hand over", 0) in a.host.calls)
        others = self.torn_away(cluster, a, backup)
        gate.set()
        await until(lambda: (0, 2) in a.carried_out, what="it to be told that nothing of it is there")
        assert (others, ()) == (cluster.client.store.get(key("owners", 0)), await cluster.held())

    async def test_so_does_the_word_that_it_is_served(self, cluster):
        """O."""
        a = await cluster.join("a")
        a.host.opening.clear()
        await cluster.plan(a=[0])
        backup = cluster.client.store.backup()
        await until(lambda: ("open", 0) in a.host.calls)
        others = self.torn_away(cluster, a, backup)
        a.host.opening.set()
        await until(lambda: [0] == a.owned and a.membership.unwritten == 0)
        assert others == cluster.client.store.get(key("owners", 0))

    async def test_a_plan_that_stays_an_older_one_ends_the_term(self, cluster):
        """The leader knows no newer generation: nobody would ever carry out what it plans."""
        a = await cluster.join("a", ttl=1)
        cluster.generation = 5
        await cluster.own(a=[0])
        cluster.generation = 3
        await cluster.plan(a=[1])
        await until(lambda: a.lost)
        assert ["its plan in etcd is of generation 4, and it has carried out 6"] == a.lost

    @in_virtual_time
    async def test_one_that_is_written_anew_does_not(self):
        async with MembershipCluster() as cluster:
            a = await cluster.join("a", ttl=1)
            cluster.generation = 5
            await cluster.own(a=[0])
            cluster.generation = 3
            await cluster.plan(a=[1])
            await until(lambda: a.membership.member.stale_plans)
            cluster.generation = 6
            await cluster.own(a=[0, 1])
            await asyncio.sleep(3)  # longer than the lease lasts
            assert [] == a.lost
