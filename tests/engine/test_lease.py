"""A node's registration: whose id it is, how long the lease is trusted, and when it is over."""

import asyncio
import time

import pytest

from engine import clock
from engine.clock import now_ns
from engine.errors import EvenlaneError
from engine.lease import Lease
from ring.memory import MemoryCoordination
from ring.records import NodeRecord, decode
from tests.engine.cluster import key
from tests.wait import until

SECOND = 1_000_000_000


class Made:
    """A lease, and what it told."""

    def __init__(self, client, ttl=1, name="a"):
        self.client, self.ttl = client, ttl
        self.told, self.lost, self.fit = [], [], True
        self.lease = Lease(
            client, "online", name, ttl, lambda: NodeRecord(leaving=not self.fit), lambda: self.fit,
            self.told.append, self.lost.append, self.note,
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


@pytest.fixture
async def made():
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


class TestJoining:
    async def test_the_record_stands_under_the_lease(self, made):
        """P1."""
        one = made(ttl=10)
        await one.lease.join()
        assert (NodeRecord(), one.lease.id) == await one.record()
        await one.lease.end()
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

    async def test_a_second_of_the_same_id_is_refused_once_the_first_gives_a_sign_of_life(self, made):
        """Issue 4: two nodes with the same id."""
        first, second = made(ttl=1), made(ttl=1)
        await first.lease.join()
        began = now_ns()
        with pytest.raises(EvenlaneError, match="'a' runs already"):
            await second.lease.join()
        assert now_ns() - began < 3 * SECOND
        assert (NodeRecord(), first.lease.id) == await first.record()
        assert 1 == len(made.client.store._leases), "the second has given its leases back"

    async def test_one_that_comes_back_after_a_crash_waits_for_its_old_lease(self, made):
        """P6."""
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
        assert [one.lease.trusted_until] == one.told

    async def test_what_counts_is_when_a_renewal_was_sent_not_when_it_was_answered(self, made):
        one = made(ttl=1)
        await one.lease.join()
        one.client.gate.clear()
        renewals = one.client.renewals
        await until(lambda: one.client.renewals > renewals)
        sent, count = now_ns(), len(one.told)
        await until(lambda: now_ns() > sent + SECOND // 2)
        one.client.gate.set()
        await until(lambda: len(one.told) > count)
        assert one.told[count] <= sent + SECOND // 2

    async def test_no_trust_without_answers_and_trust_again_with_them(self, made):
        """O, fault 9: an etcd that is away fences; a lease that outlives it goes on."""
        one = made(ttl=1)
        await one.lease.join()
        one.client.cut()
        await until(lambda: now_ns() > one.lease.trusted_until)
        count = len(one.told)
        assert [] == one.lost
        one.client.heal()
        await until(lambda: len(one.told) > count)
        assert one.lease.trusted_until > now_ns()
        assert [] == one.lost

    async def test_a_lease_that_etcd_has_ended_is_lost_once(self, made):
        """O."""
        one = made(ttl=1)
        await one.lease.join()
        made.client.advance(2)
        await until(lambda: one.lost)
        count = len(one.told)
        await until(lambda: now_ns() > one.lease.trusted_until)
        assert (1, count) == (len(one.lost), len(one.told))

    async def test_the_wall_clock_does_not_matter(self, made, monkeypatch):
        """Issue 4: clock jumps."""
        assert (time.CLOCK_BOOTTIME,) == clock.now_ns.args
        monkeypatch.setattr(time, "time", lambda: 0.0)
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        one = made(ttl=1)
        await one.lease.join()
        await until(lambda: len(one.told) > 2)
        assert [] == one.lost
        assert sorted(set(one.told)) == one.told


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
