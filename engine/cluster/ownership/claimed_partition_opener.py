"""Opens a partition once its owner key is this node's, however its previous owners have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.ownership.rolled_back_owners import RolledBackOwners
from evenlane.engine.errors import UnknownEpoch
from evenlane.ring.coordination.ports import CoordinationError
from evenlane.ring.membership.records import ETCD_RECORDS, NewerFormat, PastOwner, Unreadable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
    from evenlane.engine.cluster.ownership.handoff import HandoffId
    from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
    from evenlane.engine.cluster.ownership.owner_keys import OwnerKeys
    from evenlane.engine.cluster.ownership.partition_host import PartitionHost
    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
    from evenlane.ring.membership.records import HeldRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_PAUSE_S = 0.5
NEWER_PAUSE_S = 2.0
"""Before a record of a newer release is read again, s."""


class ClaimedPartitionOpener:
    """Opens partitions for one session, under `lease`. `ttl` (in seconds) is that of all leases. `is_owned(partition)`
    asks etcd whether this node owns the partition; it raises CoordinationError. `unreadable` is informed of partitions
    that wait for a record of a newer release to go.
    """

    def __init__(
        self,
        host: PartitionHost,
        keys: OwnerKeys,
        receiver: HandoffReceiver,
        ownership: OwnershipDisagreement,
        unreadable: UnreadableRecords,
        is_owned: Callable[[int], Awaitable[bool]],
        concurrency: asyncio.Semaphore,
        *,
        lease: int,
        ttl: int,
    ) -> None:
        self._host, self._keys, self._receiver, self._ownership = host, keys, receiver, ownership
        self._is_owned, self._concurrency, self._lease = is_owned, concurrency, lease
        self._unreadable = unreadable
        self._rolled_back_owners = RolledBackOwners(ttl)

    def note_claim(self, partition: int) -> None:
        """Note this node's claim: an owner that etcd has lost may serve the partition for one more lease TTL."""
        self._rolled_back_owners.begin(partition, now_ns())

    def note_claims_elsewhere(self, partitions: Iterable[int]) -> None:
        """Note that other nodes own these partitions."""
        for partition in partitions:
            self._rolled_back_owners.note_taken(partition)

    async def open(self, partition: int, epoch: int) -> dict[HandoffId, HeldRecord]:
        """Open the partition; return the handoff records of its previous owners.

        Raises Fenced; UnknownEpoch if the settle log has a higher epoch, after which the next claim gets an epoch above
        that.
        """
        while True:
            held = await self._read_held(partition)
            known = self._rolled_back_owners.list_known(partition, self._keys.previous(partition))
            try:
                await self._host.open(partition, epoch, held.values(), known, self._lease)
                self._unreadable.end(partition, opened=True)
                return held
            except UnknownEpoch as error:
                self._ownership.on_rolled_back_owner(str(error))
                if error.epoch >= epoch:
                    self._host.stop_partition(partition)
                    self._keys.raise_epoch_above(partition, error.epoch)
                    self._rolled_back_owners.withdraw(partition)
                    raise
                await self._outlive(partition, PastOwner(error.epoch, error.lease))

    async def _read_held(self, partition: int) -> dict[HandoffId, HeldRecord]:
        while True:
            try:
                async with self._concurrency:
                    return await self._receiver.read_records(partition)
            except CoordinationError as error:
                _log.info("what former owners hold is not known yet", partition=partition, error=str(error))
                await asyncio.sleep(_PAUSE_S)
            except NewerFormat as error:
                self.report_newer(partition, error)
                await asyncio.sleep(NEWER_PAUSE_S)

    def report_newer(self, partition: int, error: NewerFormat) -> None:
        """Report that the partition waits for a record of a newer release."""
        unreadable = Unreadable(ETCD_RECORDS, error.format)
        level = _log.debug if self._unreadable.known.get(partition) == unreadable else _log.warning
        level("a partition waits: a newer release wrote a record", partition=partition, reason=str(error))
        self._unreadable.note(partition, unreadable, str(error))

    async def _outlive(self, partition: int, owner: PastOwner) -> None:
        """Wait until an owner that etcd has lost can no longer serve the partition, and etcd confirms that this
        node still owns it.
        """
        self._ownership.note_waiting(partition, owner.epoch)
        await asyncio.sleep(max(0.0, (self._rolled_back_owners.find_deadline(partition) - now_ns()) / _SECOND))
        while True:
            try:
                if await self._is_owned(partition):
                    break
            except CoordinationError as error:
                _log.debug("not known whether a partition is owned", partition=partition, error=str(error))
            await asyncio.sleep(_PAUSE_S)  # if it doesn't, the watch or the lease reports it
        self._rolled_back_owners.note(partition, owner)
        self._ownership.note_wait_end(partition)
