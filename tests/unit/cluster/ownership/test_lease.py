"""A node's lease: the registration of its id, the time for which it is trusted, and its end."""

import asyncio
import time

import pytest

from evenlane.engine.base import clock
from evenlane.engine.base.aio.loop_thread import LoopThread
from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.membership.records import NodeRecord
from tests.support.membership_cluster import key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.cluster.ownership.node_leases import SECOND, Client, ObservedLease, leases

Made = ObservedLease  # imported by tests/unit/test_logs_decisions.py


@pytest.fixture
async def make_lease():
    async with leases() as make:
        yield make


class TestJoining:
    async def test_record_is_never_written_without_the_lease(self, make_lease):
        """P2, Z1: otherwise it would never expire, and the id would stay taken. A process that exits may publish its
        record at any time.
        """
        one = make_lease(ttl=60)
        await one.lease.publish()
        assert None is await one.record()
        await one.lease.join()
        assert (NodeRecord(), one.lease.id) == await one.record()
        one.fit = False
        await one.lease.publish()
        assert (NodeRecord(leaving=True), one.lease.id) == await one.record()
        await one.lease.end()
        await one.lease.publish()
        assert None is await one.record()

    async def test_id_is_reported_before_any_key_and_after_revocation(self, make_lease):
        """Z1: the process that ends the lease if this one dies must know it in time."""
        one = make_lease(ttl=10)
        await one.lease.join()
        lease = one.lease.id
        await one.lease.end()
        assert [(lease, False), (0, False)] == one.ids

    async def test_lease_that_cannot_be_revoked_is_kept(self, make_lease):
        one = make_lease(ttl=10)
        await one.lease.join()
        one.client.cut()
        await one.lease.end()
        assert [(one.lease.id, False)] == one.ids

    @in_virtual_time
    async def test_second_node_with_the_same_id_is_refused(self):
        """The first one renews its record meanwhile."""
        async with leases() as make_lease:
            first, second = make_lease(ttl=1), make_lease(ttl=1)
            await first.lease.join()
            began = asyncio.get_running_loop().time()
            with pytest.raises(EvenlaneError, match="'a' is already running"):
                await second.lease.join()
            assert asyncio.get_running_loop().time() - began < 3
            assert (NodeRecord(), first.lease.id) == await first.record()
            assert {first.lease.id} == {*make_lease.etcd.store.backup().leases}, "the second one has revoked its leases"

    async def test_restarted_node_waits_for_its_old_lease(self, make_lease):
        """Z1."""
        crashed, second = make_lease(ttl=60), make_lease(ttl=60)
        await crashed.lease.join()
        crashed.client.cut()
        joining = asyncio.ensure_future(second.lease.join())
        await until(lambda: second.client.grants and len(make_lease.etcd.store.backup().leases) == 1)
        assert not joining.done()
        make_lease.etcd.advance(60)
        await joining
        assert (NodeRecord(), second.lease.id) == await second.record()

    @in_virtual_time
    async def test_id_key_without_lease_refuses_the_node(self):
        """It was put by hand and never expires."""
        async with leases() as make_lease:
            await make_lease.etcd.put(key("nodes", "a"), b"\xff")
            with pytest.raises(EvenlaneError, match="is already running"):
                await make_lease(ttl=1).lease.join()


class TestTrust:
    @pytest.mark.parametrize(("ttl", "trusted"), [(1, 0.5), (5, 4), (10, 8), (60, 48)])
    async def test_begins_with_the_request_and_ends_before_the_ttl(self, make_lease, ttl, trusted):
        """O: sent + TTL - margin, on a clock that goes on while the machine sleeps."""
        one = make_lease(ttl=ttl)
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        await one.lease.join()
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        assert before <= one.lease.trusted_until - trusted * SECOND <= after
        assert [one.lease.trusted_until] == one.trusted_times

    @in_virtual_time
    async def test_counts_from_the_time_when_a_renewal_was_sent(self):
        """O: not from its answer."""
        async with leases() as make_lease:
            one = make_lease(ttl=1)
            await one.lease.join()
            one.client.gate.clear()
            await until(lambda: one.client.renewals)
            sent, count = clock.now_ns(), len(one.trusted_times)
            await asyncio.sleep(0.6)
            one.client.gate.set()
            await until(lambda: len(one.trusted_times) > count)
            assert one.trusted_times[count] <= sent + SECOND // 2

    async def test_lease_is_renewed_while_the_loop_is_blocked(self):
        """F1, O: in a thread of its own. The trust is there when the loop turns again."""
        thread, times = LoopThread("lease"), []
        lease = NodeLease(Client(), "online", "a", 3, NodeRecord, times.append, times.append, runner=thread)
        await lease.join()
        first, deadline = lease.trusted_until, clock.now_ns() + 30 * SECOND
        while lease.trusted_until < first + SECOND and clock.now_ns() < deadline:
            time.sleep(0.01)  # blocks the loop
        assert [first] == times
        await until(lambda: times[-1] == lease.trusted_until)
        assert first + SECOND <= times[-1]
        await lease.end()
        await thread.close()

    @in_virtual_time
    async def test_ends_without_etcd_and_returns_with_it(self):
        """O, fault 9: an unreachable etcd fences the node, which goes on if its lease survives."""
        async with leases() as make_lease:
            one = make_lease(ttl=1)
            await one.lease.join()
            one.client.cut()
            await until(lambda: clock.now_ns() > one.lease.trusted_until)
            count = len(one.trusted_times)
            assert [] == one.lost
            one.client.heal()
            await until(lambda: len(one.trusted_times) > count)
            assert one.lease.trusted_until > clock.now_ns()
            assert [] == one.lost

    @in_virtual_time
    async def test_expired_lease_is_lost_once(self):
        """O."""
        async with leases() as make_lease:
            one = make_lease(ttl=1)
            await one.lease.join()
            make_lease.etcd.advance(2)
            await until(lambda: one.lost)
            count = len(one.trusted_times)
            await until(lambda: clock.now_ns() > one.lease.trusted_until)
            assert (1, count) == (len(one.lost), len(one.trusted_times))

    async def test_wall_clock_does_not_matter(self, make_lease, monkeypatch):
        assert (time.CLOCK_BOOTTIME,) == clock.now_ns.args
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        one = make_lease(ttl=3)
        await one.lease.join()
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost
        assert sorted(set(one.trusted_times)) == one.trusted_times


class TestRecord:
    async def test_leaving_is_published_at_once(self, make_lease):
        """P5: long before the record is due."""
        one = make_lease(ttl=60)
        await one.lease.join()
        one.fit = False

        async def is_leaving():
            return (await one.record())[0].leaving

        await until(is_leaving)

    async def test_corrupted_record_is_rewritten_under_the_lease(self, make_lease):
        one = make_lease(ttl=3)
        await one.lease.join()
        await make_lease.etcd.put(key("nodes", "a"), b"\xff")

        async def is_rewritten():
            item = await make_lease.etcd.get(key("nodes", "a"))
            return item.value != b"\xff" and item.lease == one.lease.id

        await until(is_rewritten)
        await one.lease.end()
        assert None is await one.record()
