"""Epochs in etcd, and the wait for the leases of owners that etcd has lost (O, F2)."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.ownership.epochs import Epochs
from evenlane.engine.cluster.ownership.rolled_back_owners import RolledBackOwners
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.membership.records import PastOwner

SECOND = 1_000_000_000
KEY = names.key("online", "epochs", 3)
LEASE = 77


@pytest.fixture
async def etcd():
    made = MemoryCoordination()
    yield made
    await made.close()


def epochs_of(etcd, lease=LEASE, records=None):
    return Epochs(etcd, "online", lease, records or RecordReader("online"))


def owners(*epochs):
    return tuple(PastOwner(epoch, LEASE) for epoch in epochs)


async def claimed(etcd, epochs, partition=3):
    """Claim as a node does. Return the epoch and the previous one (0: none), None if the claim is refused."""
    await epochs.know(partition)
    claim = epochs.claim(partition)
    result = await etcd.txn([claim.condition], [claim.put])
    if not result.succeeded:
        epochs.discard(partition)
        return None
    epochs.note_claim(partition, claim.base, result.revision, LEASE, claim.before)
    return claim.base + result.revision, claim.before[0].epoch if claim.before else 0


async def test_epoch_is_the_revision_without_a_rollback(etcd):
    await etcd.put("other", b"")
    assert (3, 0) == await claimed(etcd, epochs_of(etcd))
    assert (4, 3) == await claimed(etcd, epochs_of(etcd))
    assert (5, 0) == await claimed(etcd, epochs_of(etcd), partition=4)


async def test_claim_is_refused_once_after_a_missed_one(etcd):
    one, other = epochs_of(etcd), epochs_of(etcd)
    await one.know(3)
    assert (2, 0) == await claimed(etcd, other)
    assert await claimed(etcd, one) is None
    assert (3, 2) == await claimed(etcd, one)


async def test_observed_claim_is_not_read_again(etcd):
    one, other = epochs_of(etcd), epochs_of(etcd)
    await one.know(3)
    await claimed(etcd, other)
    one.note_claim(3, 0, 2, LEASE)
    etcd.cut()
    await one.know(3)
    etcd.heal()
    assert (3, 2) == await claimed(etcd, one)


async def test_claim_names_up_to_eight_previous_owners(etcd):
    """O: the settle log may be of any of them. A node reads them, or sees them in the owner key."""
    for _ in range(11):
        await claimed(etcd, epochs_of(etcd))
    reader, watcher = epochs_of(etcd), epochs_of(etcd)
    await reader.know(3)
    assert owners(12, 11, 10, 9, 8, 7, 6, 5) == reader.claim(3).before
    watcher.note_claim(3, 0, 12, LEASE, owners(11, 10))
    watcher.note_claim(3, 0, 12, LEASE)  # the owner serves, and has written its key again
    assert owners(12, 11, 10) == watcher.claim(3).before


async def test_claim_is_refused_once_after_a_rollback(etcd):
    """F3: so the lost owner doesn't count as one that etcd knows."""
    backup = etcd.store.backup()
    one = epochs_of(etcd)
    assert (2, 0) == await claimed(etcd, one)
    etcd.restore(backup)
    assert await claimed(etcd, one) is None
    assert (2, 0) == await claimed(etcd, one)


async def test_base_rises_above_the_epoch_of_a_settle_log(etcd):
    """F2: for all later owners, too."""
    etcd.restore(Backup())
    one = epochs_of(etcd)
    assert (2, 0) == await claimed(etcd, one)
    one.raise_above(3, 9_000)
    (put,) = one.build_base_raise(3)
    assert (KEY, 0) == (put.key, put.lease)
    assert [] == one.build_base_raise(4)
    await etcd.txn([], [put])
    epoch, last = await claimed(etcd, one)
    assert (True, 0) == (epoch > 9_000, last)
    assert [] == one.build_base_raise(3)
    assert (epoch + 1, epoch) == await claimed(etcd, epochs_of(etcd))


async def test_lease_distinguishes_owners_of_equal_epochs(etcd):
    """O, F3: after a rollback, etcd reaches the revision again at which it had created an owner that it has lost."""
    backup = etcd.store.backup()
    await claimed(etcd, epochs_of(etcd))
    etcd.restore(backup)
    await claimed(etcd, epochs_of(etcd, lease=78))
    third = epochs_of(etcd)
    await third.know(3)
    assert (PastOwner(2, 78),) == third.claim(3).before


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"base": -1}', b"\xff"])
async def test_epoch_is_the_revision_after_a_corrupted_record(etcd, value):
    await claimed(etcd, epochs_of(etcd))
    await etcd.put(KEY, value)
    await etcd.put(names.key("online", "epochs", "x"), b"{}")
    records = RecordReader("online")
    assert (5, 0) == await claimed(etcd, epochs_of(etcd, records=records))  # the previous owner isn't known
    assert 1 == records.skipped


class TestLostOwners:
    def test_wait_is_one_lease_from_the_claim(self):
        rolled_back = RolledBackOwners(10)
        rolled_back.begin(0, 5 * SECOND)
        assert 15 * SECOND == rolled_back.find_deadline(0)
        rolled_back.begin(0, 60 * SECOND)
        assert 70 * SECOND == rolled_back.find_deadline(0)

    def test_time_since_a_withdrawn_claim_counts(self):
        rolled_back = RolledBackOwners(10)
        rolled_back.begin(0, 5 * SECOND)
        rolled_back.withdraw(0)
        rolled_back.begin(0, 6 * SECOND)
        assert 15 * SECOND == rolled_back.find_deadline(0)
        rolled_back.begin(0, 60 * SECOND)
        assert 70 * SECOND == rolled_back.find_deadline(0)

    def test_claim_of_another_node_restarts_the_wait(self):
        """O: etcd may have lost that one, too."""
        rolled_back = RolledBackOwners(10)
        rolled_back.begin(0, 5 * SECOND)
        rolled_back.withdraw(0)
        rolled_back.note_taken(0)
        rolled_back.begin(0, 6 * SECOND)
        assert 16 * SECOND == rolled_back.find_deadline(0)

    def test_owners_are_noted_by_partition(self):
        rolled_back = RolledBackOwners(10)
        rolled_back.note(0, PastOwner(7, 1))
        assert {PastOwner(7, 1), PastOwner(9, 2)} == rolled_back.list_known(0, [PastOwner(9, 2)])
        assert {PastOwner(9, 2)} == rolled_back.list_known(1, [PastOwner(9, 2)])
