"""A node's lease compares its keys in etcd: a renewal counts only if etcd has all that the node owns, and no more (F3,
O).
"""

import asyncio
from itertools import cycle

import pytest

from evenlane.engine.base import clock
from evenlane.ring.coordination.memory.server import Backup
from tests.support.membership_cluster import key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.cluster.ownership.node_leases import leases

OWN = frozenset({key("owners", 1), key("owners", 2)})
HELD = key("held", 1, 5)


async def joined(make_lease, *keys, served=OWN, known=OWN):
    """Return a lease with these keys in etcd, of a node that serves and knows others."""
    one = make_lease(ttl=1)
    await one.lease.join()
    for each in keys:
        await one.client.put(each, b"", one.lease.id)
    one.lease.compare(lambda: served, lambda: known)
    return one


@in_virtual_time
async def test_equal_keys_keep_the_lease():
    async with leases() as make_lease:
        one = await joined(make_lease, *OWN)
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost


@in_virtual_time
async def test_missing_owner_key_ends_the_lease_without_further_trust():
    async with leases() as make_lease:
        one = await joined(make_lease, key("owners", 1))
        count = len(one.trusted_times)
        await until(lambda: one.lost)
        assert ["etcd has none of 1 owner keys of this node, /evenlane/online/owners/2 among them"] == one.lost
        assert count == len(one.trusted_times)
        assert one.lost == one.differences


@in_virtual_time
async def test_unknown_owner_key_ends_the_lease():
    async with leases() as make_lease:
        one = await joined(make_lease, *OWN, key("owners", 7), key("done", "a"))
        await until(lambda: one.lost)
        assert ["etcd has 1 keys of this node that it doesn't know, /evenlane/online/owners/7 among them"] == one.lost


@in_virtual_time
@pytest.mark.parametrize("known", [True, False])
async def test_only_an_unknown_held_key_ends_the_lease(known):
    """Messages that an unknown session held would be handled twice, or never."""
    async with leases() as make_lease:
        one = await joined(make_lease, *OWN, HELD, known=OWN | ({HELD} if known else set()))
        count = len(one.trusted_times)
        await until(lambda: one.lost or len(one.trusted_times) > count + 2)
        lost = f"etcd has 1 keys of this node that it doesn't know, {HELD} among them"
        assert ([] if known else [lost]) == one.lost


@in_virtual_time
@pytest.mark.parametrize("first", [0, 1])
async def test_held_key_may_be_known_before_or_after_the_question(first):
    """A partition is released while etcd is asked, or the last record of a handoff is published."""
    async with leases() as make_lease:
        one = await joined(make_lease, *OWN, HELD)
        known = cycle([OWN | {HELD}, OWN][:: 1 - 2 * first])
        one.lease.compare(lambda: OWN, lambda: next(known))
        count, renewals = len(one.trusted_times), one.client.renewals
        await until(lambda: len(one.trusted_times) > count + 2)
        assert [] == one.lost
        assert one.client.renewals - renewals == len(one.trusted_times) - count, "each renewal counts"


@in_virtual_time
async def test_single_difference_is_ignored():
    """A partition was acquired or released just now."""
    async with leases() as make_lease:
        one = await joined(make_lease, key("owners", 1))
        renewals = one.client.renewals
        await until(lambda: one.client.renewals > renewals)
        await one.client.put(key("owners", 2), b"", one.lease.id)
        count = len(one.trusted_times)
        await until(lambda: len(one.trusted_times) > count)
        assert [] == one.lost


@in_virtual_time
async def test_partition_released_during_the_question_is_not_missing():
    async with leases() as make_lease:
        one = make_lease(ttl=1)
        await one.lease.join()
        served = [OWN, frozenset()] * 9
        one.lease.compare(lambda: served.pop(0), lambda: OWN)
        await until(lambda: len(one.trusted_times) > 2)
        assert [] == one.lost


@in_virtual_time
async def test_lease_that_ends_before_its_time_is_a_difference():
    """F2: etcd was wiped."""
    async with leases() as make_lease:
        one = make_lease(ttl=60)
        await one.lease.join()
        make_lease.etcd.restore(Backup())
        await asyncio.sleep(2.5)
        one.lease.renew_now()
        await until(lambda: one.lost)
        assert ["etcd does not know its lease, which it renewed 2.5 s ago"] == one.lost == one.differences


@in_virtual_time
async def test_expired_lease_is_no_difference():
    async with leases() as make_lease:
        one = make_lease(ttl=1)
        one.client.gate.clear()
        await one.lease.join()
        await until(lambda: clock.now_ns() > one.lease.trusted_until)
        make_lease.etcd.advance(1)
        one.client.gate.set()
        await until(lambda: one.lost)
        assert (["its lease in etcd has ended"], []) == (one.lost, one.differences)


@in_virtual_time
async def test_id_under_an_earlier_lease_of_the_process_is_reclaimed_at_once():
    """F3: the restored etcd has a lease again that this process has revoked."""
    async with leases() as make_lease:
        first = make_lease(ttl=60)
        await first.lease.join()
        backup = make_lease.etcd.store.backup()
        await first.lease.end()
        make_lease.etcd.restore(backup)
        second = make_lease(ttl=60)
        second.had.append(1)
        began = asyncio.get_running_loop().time()
        await second.lease.join()
        assert began == asyncio.get_running_loop().time()
