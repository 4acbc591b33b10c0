"""Membership after etcd was rolled back (F2, F3)."""

import asyncio
from dataclasses import replace

import pytest

from evenlane.engine.errors import UnknownEpoch
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import PutKey
from evenlane.ring.membership.records import OwnerRecord, PastOwner, decode
from tests.support.membership_cluster import MembershipCluster, RecordingHost, key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.cluster.observed_client import ObservedClient
from tests.unit.cluster.ownership.owner_keys import owner_epoch

LEASE = 9_999  # of an owner that etcd has lost


@pytest.fixture
async def cluster():
    async with MembershipCluster() as made:
        made.client = ObservedClient(made.client.store)
        yield made


class HostWithLogs(RecordingHost):
    """Its settle logs have these epochs, of owners whose lease was `LEASE`. They may still serve, unless `ended`."""

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


class TestEtcdRollback:
    """F2, F3."""

    async def test_epoch_is_above_that_of_the_settle_log(self, cluster):
        """O: in the owner key, too."""
        host = HostWithLogs(cluster, "a", p0=9_000)
        host.ended = True
        a = await cluster.join("a", host=host)
        await cluster.own(a=[0, 1])
        assert (True, True) == (a.host.open_now[0] > 9_000, a.host.open_now[1] < 100)
        assert a.host.open_now == a.membership.epochs
        await until(lambda: owner_epoch(cluster, 0))
        assert a.host.open_now[0] == await owner_epoch(cluster, 0)
        assert [] == a.lost

    async def test_owner_key_names_the_previous_owner(self, cluster):
        """O: a node that starts later sees only this key."""
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        first = a.membership.epochs[0]
        await cluster.own(a=[], b=[0])
        await until(lambda: owner_epoch(cluster, 0))
        item = await cluster.client.get(key("owners", 0))
        assert PastOwner(first, a.lease.id) == decode(OwnerRecord, item.key, item.value).before[0]

    async def test_epochs_of_later_owners_are_higher(self, cluster):
        host = HostWithLogs(cluster, "a", p0=9_000)
        host.ended = True
        _, b = [await cluster.join("a", host=host), await cluster.join("b")]
        await cluster.own(a=[0], b=[])
        first = host.open_now[0]
        await cluster.own(a=[], b=[0])
        assert first < b.host.open_now[0]

    async def test_handoff_key_has_the_raisedowner_epoch(self, cluster):
        host = HostWithLogs(cluster, "a", p0=9_000)
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
    async def test_takeover_waits_for_the_lease_of_a_lost_owner(self):
        """O: from the claim on, for the time of a lease."""
        async with MembershipCluster() as cluster:
            clock = asyncio.get_running_loop().time
            a = await cluster.join("a", ttl=1, host=HostWithLogs(cluster, "a", p0=1))
            began = clock()
            await cluster.plan(a=[0, 1])
            await until(lambda: 1 in a.owned)
            assert 0 not in a.host.open_now
            await until(lambda: 0 in a.owned)
            assert 1 <= clock() - began < 2
            await cluster.own(a=[1])
            began = clock()
            await cluster.own(a=[0, 1])
            assert clock() - began < 0.5, "this time etcd knows the previous owner"

    async def test_partition_lost_during_the_wait_is_not_opened(self, cluster):
        a = await cluster.join("a", ttl=1, host=HostWithLogs(cluster, "a", p0=1))
        await cluster.plan(a=[0])
        await until(lambda: 0 in a.membership.member.served)
        a.client.cut()
        await cluster.client.delete(key("owners", 0))
        await cluster.client.put(key("owners", 0), b"{}")
        a.client.heal()
        await until(lambda: ("drop", 0) in a.host.calls)
        assert {} == a.host.open_now

    async def test_node_with_other_owner_keys_than_etcd_rejoins(self, cluster):
        """It serves a partition without an owner key, and has the key of one that it doesn't serve."""
        a = await cluster.join("a", ttl=3)
        await cluster.own(a=[0])
        backup = cluster.client.store.backup()
        await cluster.own(a=[1])
        cluster.client.restore(replace(backup, revision=100))  # etcd's revision doesn't reveal the restore
        await until(lambda: a.lost)
        assert "etcd is at revision 100, and owner keys are as they were before" in a.lost[0]
        assert not [reason for reason in a.lost if "ended" in reason]

    async def test_further_owner_keys_of_the_node_are_adopted(self, cluster):
        a = await cluster.join("a", ttl=3)
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 3), b"{}", a.lease.id)
        await until(lambda: 3 not in a.membership.member.known, what="partition 3 to be released, as it isn't planned")
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 2), b"{}", a.lease.id)
        await cluster.own(a=[0, 2])
        assert ([], []) == (a.lost, a.fatal)

    async def test_answer_to_a_claim_reveals_a_rollback_before_the_watch(self, cluster):
        """O: all that the node knows of owners is outdated, too."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: owner_epoch(cluster, 0))
        newest = cluster.client.store.revision
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0, 1])
        await until(lambda: 1 in a.membership.member.known)
        a.client.deaf = True
        cluster.client.restore(Backup())
        gate.set()
        await until(lambda: a.lost)
        assert [f"etcd is at revision 1, and owner keys are as they were before {newest}"] == a.lost

    async def test_answer_older_than_the_watch_is_no_rollback(self, cluster):
        """The watch may report changes from after the claim first."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: owner_epoch(cluster, 0))
        a.client.gates["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0, 1])
        await until(lambda: a.client.waiting)
        for value in (b"{}", b"[]"):
            newest = await cluster.client.put(key("owners", 3), value)
        await until(lambda: a.client.has_handled("owners", newest))
        gate.set()
        await until(lambda: "acquire 1" not in [task.get_name() for task in asyncio.all_tasks()])
        assert ([0, 1], []) == (a.owned, a.lost)

    @staticmethod
    def replace_owner(cluster, a, backup):
        """Roll etcd back to before the claim of 0, and give it to another owner of the same epoch, unseen by `a`."""
        store, (epoch,) = cluster.client.store, a.membership.member.epochs.values()
        a.client.deaf = True
        store.restore(backup)
        store.txn([], [PutKey(key("owners", 0), b"the other's", store.grant(60))], [])
        assert epoch == store.get(key("owners", 0)).create_revision
        return store.get(key("owners", 0))

    async def test_release_leaves_another_owner_of_the_sameowner_epoch(self, cluster):
        """O: it writes no handoff record, either."""
        a = await cluster.join("a")
        await cluster.plan(a=[0])
        backup = cluster.client.store.backup()
        await until(lambda: [0] == a.owned and a.membership.unwritten == 0)
        a.client.late["owners"] = gate = asyncio.Event()
        a.host.run(0, 5)
        await cluster.plan(a=[])
        await until(lambda: ("hand over", 0) in a.host.calls)
        others = self.replace_owner(cluster, a, backup)
        gate.set()
        await until(lambda: (0, 2) in a.carried_out)
        assert (others, ()) == (cluster.client.store.get(key("owners", 0)), await cluster.held())

    async def test_rewrite_of_the_key_leaves_another_owner_of_the_sameowner_epoch(self, cluster):
        """O."""
        a = await cluster.join("a")
        a.host.opening.clear()
        await cluster.plan(a=[0])
        backup = cluster.client.store.backup()
        await until(lambda: ("open", 0) in a.host.calls)
        others = self.replace_owner(cluster, a, backup)
        a.host.opening.set()
        await until(lambda: [0] == a.owned and a.membership.unwritten == 0)
        assert others == cluster.client.store.get(key("owners", 0))

    async def test_plan_that_stays_older_ends_the_session(self, cluster):
        """The leader knows no newer generation, and no node would carry out its plans."""
        a = await cluster.join("a", ttl=3)
        cluster.generation = 5
        await cluster.own(a=[0])
        cluster.generation = 3
        await cluster.plan(a=[1])
        await until(lambda: a.lost)
        assert ["its plan in etcd is of generation 4, and it has carried out 6"] == a.lost

    @in_virtual_time
    async def test_rewritten_plan_keeps_the_session(self):
        async with MembershipCluster() as cluster:
            a = await cluster.join("a", ttl=1)
            cluster.generation = 5
            await cluster.own(a=[0])
            cluster.generation = 3
            await cluster.plan(a=[1])
            await until(lambda: a.membership.member.plan.stale)
            cluster.generation = 6
            await cluster.own(a=[0, 1])
            await asyncio.sleep(3)  # longer than the lease lasts
            assert [] == a.lost
