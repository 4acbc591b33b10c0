"""The epochs of partitions, as etcd keeps them: the last one of each is known before the next is claimed.

An owner's epoch is its key's create-revision plus the partition's *base*, which is 0 until etcd goes back: then the
settle log holds a higher epoch than the next owner's, and that owner raises the base above it. Base and last claim
stand under `epochs/<partition>`, which is put in the transaction that makes the owner key, on the condition that it
hasn't changed. So an owner knows the epoch before its own, as this etcd remembers it; a settle log that was written
under another one tells that etcd has gone back (docs/adr/0026).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.ring.coordination.ports import Absent, ModifiedAt, Put
from evenlane.ring.membership.records import EpochRecord, PastOwner, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination


_MOST_BEFORE = 8


class Claim(NamedTuple):
    """What a claim of a partition puts under `epochs/`, and on what condition. `before` are the owners before it, the
    latest first, as far as etcd tells.
    """

    base: int
    before: tuple[PastOwner, ...]
    condition: Absent | ModifiedAt
    put: Put


class _Last(NamedTuple):
    """The last claim of a partition, as etcd has it. `revision` is 0 if there was none, `lease` if what was put there
    since isn't a claim.
    """

    base: int = 0
    revision: int = 0
    lease: int = 0
    before: tuple[PastOwner, ...] = ()

    @property
    def owners(self) -> tuple[PastOwner, ...]:
        """Who made it, and those before."""
        last = PastOwner(self.base + self.revision, self.lease)
        return (last, *self.before)[:_MOST_BEFORE] if self.lease else self.before


class Epochs:
    """Of one term of a node, under this lease."""

    def __init__(self, coordination: Coordination, env: str, lease: int, records: RecordReader) -> None:
        self._env, self._lease, self._records = env, lease, records
        self._prefix = names.key(env, "epochs", "")
        self._listing = SingleFlight(partial(coordination.list, self._prefix))
        self._is_listed = False
        self._forgotten: set[int] = set()  # partitions whose last claim is to be read again
        self._last: dict[int, _Last] = {}
        self._above: dict[int, int] = {}  # partition -> an epoch that the next one must be higher than

    async def know(self, partition: int) -> None:
        """Read the last claim, unless it is known. Raises CoordinationError."""
        if partition in self._last:
            return
        if self._is_listed and partition not in self._forgotten:
            self._last[partition] = _Last()  # if somebody has claimed it since, the claim is refused
            return
        for item in (await self._listing.read()).items:
            number = names.number(item.key.removeprefix(self._prefix))
            record = self._records.read(EpochRecord, item.key, item.value)
            if number is not None:  # a value that somebody has spoilt leaves the revision
                record = record or EpochRecord()
                self._last.setdefault(number, _Last(record.base, item.mod_revision, record.lease, tuple(record.before)))
        self._last.setdefault(partition, _Last())
        self._is_listed = True
        self._forgotten.discard(partition)

    def claim(self, partition: int) -> Claim:
        """The next claim, after `know`."""
        last = self._last[partition]
        key, before = self._key(partition), last.owners
        condition = ModifiedAt(key, last.revision) if last.revision else Absent(key)
        return Claim(last.base, before, condition, self._put(partition, last.base, self._lease, before))

    def claimed(self, partition: int, base: int, revision: int, lease: int, before: Sequence[PastOwner] = ()) -> None:
        """Somebody has made the owner key at this revision, by a claim under this lease that said who was `before`. A
        key that is written again says nothing of that.
        """
        known = self._last.get(partition)
        if known is None or known.revision != revision:
            self._last[partition] = _Last(base, revision, lease, tuple(before))

    def forget(self, partition: int) -> None:
        """A claim was refused: perhaps what is known of the last one isn't so any more."""
        self._last.pop(partition, None)
        self._forgotten.add(partition)

    def raise_above(self, partition: int, epoch: int) -> None:
        """The next claim, by whomever, is to get a higher epoch than this one."""
        self._above[partition] = epoch

    def raising(self, partition: int) -> list[Put]:
        """What does that: put it in the transaction that releases the claim whose epoch was too low. Then nobody
        takes the settle log's epoch for that of the claim, either.
        """
        above = self._above.pop(partition, 0)
        if above:
            self.forget(partition)
        return [self._put(partition, above, 0, ())] if above else []

    def _key(self, partition: int) -> str:
        return names.key(self._env, "epochs", partition)

    def _put(self, partition: int, base: int, lease: int, before: Sequence[PastOwner]) -> Put:
        return Put(self._key(partition), encode(EpochRecord(base=base, lease=lease, before=[*before])))
