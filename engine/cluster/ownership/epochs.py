"""Partition epochs in etcd: the last epoch of a partition is known before the next one is claimed.

An owner's epoch is its key's create-revision plus the partition's *base*. The base is 0 until etcd is rolled back. The
settle log then holds a higher epoch than the next owner's, and that owner raises the base above it. Base and last claim
are stored under `epochs/<partition>`. The transaction that creates the owner key also writes this record, provided that
it hasn't changed since it was read. An owner therefore knows the previous epoch as this etcd remembers it. A settle log
written under a different one proves that etcd was rolled back (docs/adr/0026).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.ring.coordination.ports import Absent, ModifiedAt, PutKey
from evenlane.ring.membership.records import EpochRecord, NewerFormat, PastOwner, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination


_MOST_BEFORE = 8


class EpochClaim(NamedTuple):
    """A claim of a partition: the value to put under `epochs/`, and the condition for it. `before` are the previous
    owners that etcd knows, latest first.
    """

    base: int
    before: tuple[PastOwner, ...]
    condition: Absent | ModifiedAt
    put: PutKey


class _Last(NamedTuple):
    """The last claim of a partition in etcd. `revision` is 0 if there was none, `lease` if the record is no claim."""

    base: int = 0
    revision: int = 0
    lease: int = 0
    before: tuple[PastOwner, ...] = ()

    @property
    def owners(self) -> tuple[PastOwner, ...]:
        """The owner that made the claim, followed by the owners before it; latest first."""
        last = PastOwner(self.base + self.revision, self.lease)
        return (last, *self.before)[:_MOST_BEFORE] if self.lease else self.before


class Epochs:
    """Epochs as one session knows them, whose claims are under `lease`.

    Invariants: `_last` has the last known claim by partition. Once `_is_listed`, a partition in neither `_last` nor
    `_rolled_back` had no claim at the time of the listing.
    """

    def __init__(self, coordination: Coordination, cluster: str, lease: int, records: RecordReader) -> None:
        self._cluster, self._lease, self._records = cluster, lease, records
        self._prefix = names.key(cluster, "epochs", "")
        self._listing = SingleFlight(partial(coordination.list, self._prefix))
        self._is_listed = False
        self._rolled_back: set[int] = set()  # partitions whose last claim must be read again
        self._last: dict[int, _Last] = {}
        self._above: dict[int, int] = {}  # partition -> lower bound (exclusive) of its next epoch

    async def know(self, partition: int) -> None:
        """Read the last claim unless it is already known. Raises CoordinationError; NewerFormat if a newer release has
        recorded it.
        """
        if partition in self._last:
            return
        if self._is_listed and partition not in self._rolled_back:
            self._last[partition] = _Last()  # if another node has claimed it since, this node's claim is refused
            return
        newer: dict[int, NewerFormat] = {}
        for item in (await self._listing.read()).items:
            number = names.number(item.key.removeprefix(self._prefix))
            try:
                record = self._records.read_known(EpochRecord, item.key, item.value)
            except NewerFormat as error:
                if number is not None:
                    newer[number] = error
                continue
            if number is not None:  # a corrupted value still has its revision
                record = record or EpochRecord()
                self._last.setdefault(number, _Last(record.base, item.mod_revision, record.lease, tuple(record.before)))
        self._rolled_back.update(newer)  # read again at each claim
        self._is_listed = True
        if partition in newer and partition not in self._last:
            raise newer[partition]
        self._last.setdefault(partition, _Last())
        self._rolled_back.discard(partition)

    def claim(self, partition: int) -> EpochClaim:
        """Return the next claim. `know` must have been called."""
        last = self._last[partition]
        key, before = self._key(partition), last.owners
        condition = ModifiedAt(key, last.revision) if last.revision else Absent(key)
        return EpochClaim(last.base, before, condition, self._put(partition, last.base, self._lease, before))

    def note_claim(
        self, partition: int, base: int, revision: int, lease: int, before: Sequence[PastOwner] = ()
    ) -> None:
        """Note that an owner key was created at this revision, by a claim under this lease with these owners `before`
        it. A rewrite of a known key changes nothing.
        """
        known = self._last.get(partition)
        if known is None or known.revision != revision:
            self._last[partition] = _Last(base, revision, lease, tuple(before))

    def discard(self, partition: int) -> None:
        """Forget the last claim after a refused one: it may be out of date."""
        self._last.pop(partition, None)
        self._rolled_back.add(partition)

    def raise_above(self, partition: int, epoch: int) -> None:
        """Make the next claim, by any node, get a higher epoch than this one."""
        self._above[partition] = epoch

    def build_base_raise(self, partition: int) -> list[PutKey]:
        """Return the puts that raise the base, for the transaction that releases the claim whose epoch was too low.

        In the same transaction, so that no node takes the settle log's epoch for that of the released claim.
        """
        above = self._above.pop(partition, 0)
        if above:
            self.discard(partition)
        return [self._put(partition, above, 0, ())] if above else []

    def _key(self, partition: int) -> str:
        return names.key(self._cluster, "epochs", partition)

    def _put(self, partition: int, base: int, lease: int, before: Sequence[PastOwner]) -> PutKey:
        return PutKey(self._key(partition), encode(EpochRecord(base=base, lease=lease, before=[*before])))
