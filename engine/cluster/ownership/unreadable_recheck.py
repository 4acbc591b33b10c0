"""Reads the records of a partition again that the node couldn't take over, once other nodes serve it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.records.settle_record import UnknownVersion
from evenlane.ring.coordination.ports import CoordinationError
from evenlane.ring.membership.records import NewerFormat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
    from evenlane.engine.cluster.ownership.owner_keys import OwnerKeys
    from evenlane.engine.cluster.ownership.partition_host import PartitionHost
    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords

_log = structlog.get_logger(__name__)

RECHECK_S = 30.0
"""The time between two checks if no owner key changes, s."""


class UnreadableRecheck:
    """Ends what the node reports of a partition as unreadable once it could take the partition over.

    An owner replaces the settle logs at its takeover, and deletes the handoff records when they are done with; it may
    also be of an older release. So the records are read as a takeover reads them: after each change of the partition's
    owner key, and every `recheck_s` seconds. A partition that the node waits for is left to the takeover.
    """

    def __init__(
        self,
        unreadable: UnreadableRecords,
        keys: OwnerKeys,
        receiver: HandoffReceiver,
        host: PartitionHost,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self._unreadable, self._keys, self._receiver, self._host = unreadable, keys, receiver, host
        self._recheck_s = recheck_s
        self._owner_changed = asyncio.Event()

    def note_claims_elsewhere(self, partitions: Iterable[int]) -> None:
        """Note that the owner keys of these partitions were written by other nodes."""
        if not self._unreadable.left.isdisjoint(partitions):
            self._owner_changed.set()

    async def run(self) -> None:
        """Check for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._recheck_s):
                    await self._owner_changed.wait()
            self._owner_changed.clear()
            for partition in sorted(self._unreadable.left):
                if await self._is_readable(partition):
                    self._unreadable.forget(partition)
                    _log.info("a partition's records can be read now", partition=partition)

    async def _is_readable(self, partition: int) -> bool:
        """Return whether the node knows that it could read the partition's records."""
        try:
            await self._keys.know(partition)
            await self._receiver.read_records(partition)
            await self._host.read_logs(partition)
        except (NewerFormat, UnknownVersion):
            return False
        except (CoordinationError, Lost, Refused) as error:
            _log.debug("not known whether records can be read", partition=partition, error=str(error))
            return False
        return True
