"""A node's registration: whose id it is, how long the lease is trusted, and when it is over."""

import asyncio
import time
from contextlib import asynccontextmanager
from itertools import cycle

import pytest

from evenlane.engine.base import clock
from evenlane.engine.base.aio.loop_thread import LoopThread
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.membership.records import NodeRecord, decode
from tests.support.membership_cluster import key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

SECOND = 1_000_000_000


class Made:
    """A lease, and what it told."""

    def __init__(self, client, ttl=1, name="a"):
        self.client, self.ttl = client, ttl
        self.trusted_times, self.lost, self.fit = [], [], True
        self.differences, self.had = [], []
        self.lease = NodeLease(
            client, "online", name, ttl, lambda: NodeRecord(leaving=not self.fit), self.trusted_times.append,
            self.lost.append, self.note, on_difference=self.differences.append, had=self.had,
        )  # fmt: skip
        self.ids = []  # as it told them, and whether its record stood in etcd then

    def note(self, lease):
        store = self.client.store
        self.ids.append((lease, store.get(key("nodes", "a")) is not None))

    async def record(self):
        item = await self.client.store_client.get(key("nodes", "a"))
        return None if item is None else (decode(NodeRecord, item.key, item.value), item.lease)


class Client(MemoryCoordination):
    """It counts renewals; they wait for `gate`."""

    def __init__(self, store=None):
        super().__init__(store)
        self.renewals = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def keep_alive(self, lease):
        self.renewals += 1
        await self.gate.wait()
        return await super().keep_alive(lease)


@asynccontextmanager
async def leases():
    """Makes leases on one store, and ends them."""
    first, all_made = Client(), []

    def make(**options):
        client = Client(first.store)
        client.store_client = first
        all_made.append(Made(client, **options))
        return all_made[-1]

    make.client = first
    yield make
    for each in all_made:
        each.client.heal()
        each.client.gate.set()
        await each.lease.end()


@pytest.fixture
async def made():
    async with leases() as make:
        yield make


class TestJoining:
    async def test_the_record_stands_under_the_lease(self, made):
        """P2."""
        one = made(ttl=10)
        await one.lease.join()
        assert (NodeRecord(), one.lease.id) == await one.record()
        await one.lease.end()
        assert None is await one.record()

    async def test_the_record_is_written_under_the_lease_or_not_at_all(self, made):
        """Z1: without a lease it would never go, and the id would stay taken. A process that ends itself may write at
        any time.
        """
        one = made(ttl=60)
        await one.lease.publish()
        assert None is await one.record()
        await one.lease.join()
        one.fit = False
        await one.lease.publish()
        assert (NodeRecord(leaving=True), one.lease.id) == await one.record()
        await one.lease.end()
        await one.lease.publish()
        assert None is await one.record()

    async def test_its_id_is_told_before_anything_stands_under_it_and_again_when_it_is_given_back(self, made):
        """Z1: whoever is to end it if the process dies knows it in time."""
        one = made(ttl=10)
        await one.lease.join()
        lease = one.lease.id
        await one.lease.end()
        assert [(lease, False), (0, False)] == one.ids

    async def test_one_that_cannot_be_given_back_is_still_held(self, made):
        one = made(ttl=10)
        await one.lease.join()
        one.client.cut()
        await one.lease.end()
        assert [(one.lease.id, False)] == one.ids

    @in_virtual_time
    async def test_a_second_of_the_same_id_is_refused_once_the_first_gives_a_sign_of_life(self):
        """Issue 4: two nodes with the same id."""
        async with leases() as made:
            first, second = made(ttl=1), made(ttl=1)
            await first.lease.join()
            began = asyncio.get_running_loop().time()
            with pytest.raises(EvenlaneError, match="'a' runs already"):
                await second.lease.join()
            assert asyncio.get_running_loop().time() - began < 3
            assert (NodeRecord(), first.lease.id) == await first.record()
            assert 1 == len(made.client.store._leases), "the second has given its leases back"

    async def test_one_that_comes_back_after_a_crash_waits_for_its_old_lease(self, made):
        """Z1."""
        first, second = made(ttl=60), made(ttl=60)
        await first.lease.join()
        for task in first.lease._tasks:
            task.cancel()
        joining = asyncio.ensure_future(second.lease.join())
        await until(lambda: len(made.client.store._leases) == 1 and made.client.store._last_lease >= 2)
        assert not joining.done()
        made.client.advance(60)
        await joining
        assert (NodeRecord(), second.lease.id) == await second.record()

    async def test_a_key_that_nobody_ever_renews_or_ends_is_a_refusal_too(self, made, monkeypatch):
        """Put by hand, under no lease: it won't go by itself."""
        await made.client.put(key("nodes", "a"), b"\xff")
        with pytest.raises(EvenlaneError, match="runs already"):
            await made(ttl=1).lease.join()


class TestTrust:
    @pytest.mark.parametrize(("ttl", "trusted"), [(1, 0.5), (5, 4), (10, 8), (60, 48)])
    async def test_it_is_trusted_from_when_it_was_asked_for_and_less_long_than_etcd_does(self, made, ttl, trusted):
        """O: sent + TTL - margin, on the clock that runs on while the machine sleeps."""
        one = made(ttl=ttl)
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        await one.lease.join()
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        assert before <= one.lease.trusted_until - trusted * SECOND <= after
        assert [one.lease.trusted_until] == one.trusted_times

    async def test_what_counts_is_when_a_renewal_was_sent_not_when_it_was_answered(self, made):
        one = made(ttl=1)
        await one.lease.join()
        one.client.gate.clear()
        renewals = one.client.renewals
        await until(lambda: one.client.renewals > renewals)
        sent, count = now_ns(), len(one.trusted_times)
        await until(lambda: now_ns() > sent + SECOND // 2)
        one.client.gate.set()
        await until(lambda: len(one.trusted_times) > count)
        assert one.trusted_times[count] <= sent + SECOND // 2

    async def test_it_is_renewed_while_the_nodes_loop_is_blocked(self):
        """F1, O: the thread that keeps it goes on; trust counts from what it sent, and is there when the loop turns."""
        thread, times = LoopThread("lease"), []
        lease = NodeLease(Client(), "online", "a", 1, NodeRecord, times.append, times.append, runner=thread)
        await lease.join()
        first, deadline = lease.trusted_until, now_ns() + 30 * SECOND
        while lease.trusted_until < first + 2 * SECOND and now_ns() < deadline:
            time.sleep(0.01)  # this is the block
        assert [first] == times
        await until(lambda: times[-1] == lease.trusted_until)
        assert first + 2 * SECOND <= times[-1]
        await lease.end()
        await thread.close()

    async def test_no_trust_without_answers_and_trust_again_with_them(self, made):
        """O, fault 9: an etcd that is away fences; a lease that outlives it goes on."""
        one = made(ttl=1)
        await one.lease.join()
        one.client.cut()
        await until(lambda: now_ns() > one.lease.trusted_until)
        count = len(one.trusted_times)
        assert [] == one.lost
        one.client.heal()
        await until(lambda: len(one.trusted_times) > count)
        assert one.lease.trusted_until > now_ns()
        assert [] == one.lost

    async def test_a_lease_that_etcd_has_ended_is_lost_once(self, made):
        """O."""
        one = made(ttl=1)
        await one.lease.join()
        made.client.advance(2)
        await until(lambda: one.lost)
        count = len(one.trusted_times)
        await until(lambda: now_ns() > one.lease.trusted_until)
        assert (1, count) == (len(one.lost), len(one.trusted_times))

    async def test_the_wall_clock_does_not_matter(self, made, monkeypatch):
        """Issue 4: clock jumps."""
        assert (time.CLOCK_BOOTTIME,) == clock.now_ns.args
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        one = made(ttl=1)
        await one.lease.join()
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost
        assert sorted(set(one.trusted_times)) == one.trusted_times


class TestTelling:
    async def test_that_it_leaves_is_told_at_once(self, made):
        """P5: long before the record's turn."""
        one = made(ttl=60)
        await one.lease.join()
        one.fit = False
        await until(lambda: _leaving(one))

    async def test_a_record_that_somebody_spoilt_is_written_again_under_the_lease(self, made):
        one = made(ttl=1)
        await one.lease.join()
        await made.client.put(key("nodes", "a"), b"\xff")
        await until(lambda: _good(one))
        await one.lease.end()
        assert None is await one.record()


async def _leaving(one):
    return (await one.record())[0].leaving


async def _good(one):
    item = await one.client.store_client.get(key("nodes", "a"))
    return item.value != b"\xff" and item.lease == one.lease.id


class TestComparing:
    """F3, O: a renewal counts only if etcd has what the node owns, and nothing else."""

    OWN = frozenset({key("owners", 1), key("owners", 2)})

    async def joined(self, made, *keys, served=OWN, known=OWN):
        one = made(ttl=1)
        await one.lease.join()
        for each in keys:
            await one.client.put(each, b"", one.lease.id)
        one.lease.compare(lambda: served, lambda: known)
        return one

    async def test_all_there_is_as_well(self, made):
        one = await self.joined(made, *self.OWN)
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost

    async def test_what_is_missing_ends_it_and_is_not_trusted_meanwhile(self, made):
        one = await self.joined(made, key("owners", 1))
        count = len(one.trusted_times)
        await until(lambda: one.lost)
        assert ["etcd has none of 1 owner keys of this node, /evenlane/online/owners/2 among them"] == one.lost
        assert count == len(one.trusted_times)
        assert one.lost == one.differences

    async def test_what_is_there_and_not_known_ends_it(self, made):
        one = await self.joined(made, *self.OWN, key("owners", 7), key("done", "a"))
        await until(lambda: one.lost)
        assert ["etcd has 1 keys of this node that it doesn't know, /evenlane/online/owners/7 among them"] == one.lost

    @in_virtual_time
    @pytest.mark.parametrize("known", [True, False])
    async def test_so_does_a_held_key_unless_it_is_known(self, known):
        """What a term held that this node knows nothing of would be handled twice, or never."""
        async with leases() as made:
            held = key("held", 1, 5)
            one = await self.joined(made, *self.OWN, held, known=self.OWN | ({held} if known else set()))
            count = len(one.trusted_times)
            await until(lambda: one.lost or len(one.trusted_times) > count + 2)
            lost = f"etcd has 1 keys of this node that it doesn't know, {held} among them"
            assert ([] if known else [lost]) == one.lost

    @in_virtual_time
    @pytest.mark.parametrize("first", [0, 1])
    async def test_unless_it_is_before_or_after(self, first):
        """While etcd is asked, a partition is being released with it, or its last word is told."""
        async with leases() as made:
            held = key("held", 1, 5)
            one = await self.joined(made, *self.OWN, held)
            known = cycle([self.OWN | {held}, self.OWN][:: 1 - 2 * first])
            one.lease.compare(lambda: self.OWN, lambda: next(known))
            count, asked = len(one.trusted_times), one.client.renewals
            await until(lambda: len(one.trusted_times) > count + 2)
            assert ([], one.client.renewals - asked) == (one.lost, len(one.trusted_times) - count), (
                "each of them counts"
            )

    @in_virtual_time
    async def test_once_is_no_difference(self):
        """What was acquired or released just now may be on its way."""
        async with leases() as made:
            one = await self.joined(made, key("owners", 1))
            asked = one.client.renewals
            await until(lambda: one.client.renewals > asked)
            await one.client.put(key("owners", 2), b"", one.lease.id)
            count = len(one.trusted_times)
            await until(lambda: len(one.trusted_times) > count)
            assert [] == one.lost

    async def test_what_is_given_up_while_it_is_asked_is_not_missed(self, made):
        one = made(ttl=1)
        await one.lease.join()
        served = [self.OWN, frozenset()] * 9
        one.lease.compare(lambda: served.pop(0), lambda: self.OWN)
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost

    @in_virtual_time
    async def test_a_lease_that_is_gone_before_its_time_is_a_difference(self):
        """F2: etcd was wiped."""
        async with leases() as made:
            one = made(ttl=60)
            await one.lease.join()
            made.client.restore(Backup())
            await asyncio.sleep(2.5)
            one.lease.look()
            await until(lambda: one.lost)
            assert ["etcd knows nothing of its lease, which it renewed 2.5 s ago"] == one.lost == one.differences

    async def test_one_whose_time_is_over_is_none(self, made):
        one = made(ttl=1)
        one.client.gate.clear()
        await one.lease.join()
        await until(lambda: now_ns() > one.lease.trusted_until)
        made.client.advance(1)
        one.client.gate.set()
        await until(lambda: one.lost)
        assert (["its lease in etcd has ended"], []) == (one.lost, one.differences)

    @in_virtual_time
    async def test_an_id_under_a_lease_of_this_process_is_taken_back(self):
        """F3: by the backup it is registered under a lease that it has given up. Nothing is waited for."""
        async with leases() as made:
            first = made(ttl=60)
            await first.lease.join()
            backup = made.client.store.backup()
            await first.lease.end()
            made.client.restore(backup)
            second = made(ttl=60)
            second.had.append(1)
            began = asyncio.get_running_loop().time()
            await second.lease.join()
            assert began == asyncio.get_running_loop().time()
