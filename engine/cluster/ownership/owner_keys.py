"""Owner keys of a node: the transactions on them in etcd, and the epochs that follow from them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

import structlog

from evenlane.engine.base import names
from evenlane.engine.cluster.ownership.epochs import Epochs
from evenlane.engine.cluster.subscriptions.registry import RegistryView
from evenlane.ring.coordination.ports import (
    Absent,
    CoordinationError,
    CreatedAt,
    DeleteKey,
    HeldUnder,
    LeaseGone,
    ModifiedAt,
    PutKey,
    Unavailable,
)
from evenlane.ring.membership.records import DoneRecord, NewerFormat, OwnerRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlane.engine.cluster.ownership.epochs import EpochClaim
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue, Op
    from evenlane.ring.membership.records import PastOwner

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.5
_AGAIN_S = 0.2
_TOGETHER_S = 0.02  # partitions opened within this time share a transaction
_MOST_OPS = 60  # per transaction; etcd's limit is 128, comparisons included


class WentBack(Exception):
    """Etcd is at an earlier `revision` than one that this node has seen."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"etcd is at revision {revision}")
        self.revision = revision


class _Unwritten(NamedTuple):
    """An owner key that must be rewritten: its create-revision, and the lease that it must be under."""

    created: int
    lease: int


class OwnerKeys:
    """Manages owner keys for one session, under one lease. `concurrency` limits concurrent transactions; `registry()`
    returns the registry of subscriptions that the node follows.

    A partition is identified by its number and `created`, the create-revision of its owner key; its epoch is `created`
    plus the base of its claim. Invariants: `_claims` has this node's last claim of a partition, successful or not;
    `_bases` has the base of each key of this node, from the moment it is known to be the node's until it is released or
    lost; `_unwritten` has the keys that lack their epoch or their lease and aren't being rewritten.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        node_id: str,
        lease: int,
        records: RecordReader,
        concurrency: asyncio.Semaphore,
        registry: Callable[[], RegistryView] = RegistryView,
    ) -> None:
        self._coordination, self._cluster, self._id, self._lease = coordination, cluster, node_id, lease
        self._records, self._concurrency, self._registry = records, concurrency, registry
        self._epochs = Epochs(coordination, cluster, lease, records)
        self._claims: dict[int, EpochClaim] = {}
        self._bases: dict[tuple[int, int], int] = {}
        self._unwritten: dict[int, _Unwritten] = {}
        self._has_unwritten = asyncio.Event()
        self.seen_revision = 0  # revision of the latest change of owner keys that the watch has reported

    def key(self, partition: int) -> str:
        return names.key(self._cluster, "owners", partition)

    def keys(self, partitions: Iterable[int]) -> frozenset[str]:
        return frozenset(map(self.key, partitions))

    def epoch(self, partition: int, created: int) -> int:
        return self._bases.get((partition, created), 0) + created

    def previous(self, partition: int) -> tuple[PastOwner, ...]:
        """Owners before the last claim, latest first; none if the node has the key without having claimed it."""
        claim = self._claims.get(partition)
        return claim.before if claim is not None else ()

    @property
    def unwritten(self) -> int:
        """Number of owner keys that wait to be rewritten, without those of a transaction under way."""
        return len(self._unwritten)

    # ---- known claims

    async def know(self, partition: int) -> None:
        """Read the partition's last claim unless it is known. Raises CoordinationError, NewerFormat."""
        await self._epochs.know(partition)

    def observe(self, seen: Mapping[int, KeyValue]) -> None:
        """Learn the claims of other owners, so that the next claim of a partition needn't read the last one."""
        for partition, item in seen.items():
            try:
                record = self._records.read_known(OwnerRecord, item.key, item.value)
            except NewerFormat:
                self._epochs.discard(partition)  # the next claim reads `epochs/`
                continue
            base, before = (record.base, record.before) if record is not None else (0, ())
            self._epochs.note_claim(partition, base, item.create_revision, item.lease, before)

    def note_owned(self, partition: int, created: int) -> None:
        """Note that the key belongs to this node."""
        claim = self._claims.get(partition)
        base, before = (claim.base, claim.before) if claim is not None else (0, ())
        self._bases[partition, created] = base
        self._epochs.note_claim(partition, base, created, self._lease, before)

    def discard(self, partition: int, created: int) -> None:
        """Note that the key no longer belongs to this node."""
        self._bases.pop((partition, created), None)

    def raise_epoch_above(self, partition: int, epoch: int) -> None:
        """Make the next claim, by any node, get a higher epoch than this one. `release` writes it."""
        self._epochs.raise_above(partition, epoch)

    # ---- transactions

    async def claim(self, partition: int, plan_revision: int) -> int:
        """Create the owner key if it doesn't exist, the node's plan has this mod-revision, and the node follows the
        newest registry of subscriptions. Returns the create-revision, 0 if the claim was refused. Raises WentBack,
        LeaseGone, CoordinationError, NewerFormat.
        """
        key = self.key(partition)
        plan = ModifiedAt(names.key(self._cluster, "plan", self._id), plan_revision)
        await self.know(partition)
        claim, seen = self._epochs.claim(partition), self.seen_revision
        self._claims[partition] = claim
        record = OwnerRecord(id=self._id, base=claim.base, before=[*claim.before])
        owner = PutKey(key, encode(record), self._lease)
        registry = self._registry().compare(names.env_of(self._cluster))
        result = await self._coordination.txn([Absent(key), plan, claim.condition, registry], [owner, claim.put])
        if result.revision < seen:
            raise WentBack(result.revision)
        if not result.succeeded:
            self._epochs.discard(partition)
            return 0
        return result.revision

    async def clear(self, partition: int, revision: int) -> None:
        """Delete a key that is under no lease, if it still has this mod-revision."""
        key = self.key(partition)
        self._records.pass_over(f"{key} has no lease: it is deleted")
        with contextlib.suppress(CoordinationError):
            await self._coordination.txn([ModifiedAt(key, revision)], [DeleteKey(key)])

    async def is_owned(self, partition: int, created: int | None) -> bool:
        """Whether etcd's owner key is this node's, with this create-revision. Raises CoordinationError."""
        item = await self._coordination.get(self.key(partition))
        return item is not None and (item.create_revision, item.lease) == (created, self._lease)

    async def release(self, partition: int, created: int, handoff: Iterable[PutKey]) -> int:
        """Delete the key and put the handoff record, in one transaction that is retried until answered. Returns the
        revision, 0 if the key didn't exist. Raises LeaseGone.
        """
        key, epoch = self.key(partition), self.epoch(partition, created)
        ops: list[Op] = [*handoff, DeleteKey(key), *self._epochs.build_base_raise(partition)]
        result, lease = None, self._lease
        while result is None:  # only the answer says where the handoff record is, whatever the watch reports meanwhile
            try:
                async with self._concurrency:
                    result = await self._coordination.txn([CreatedAt(key, created), HeldUnder(key, lease)], ops)
                    if not result.succeeded and lease and await self._is_detached(key, created):
                        result, lease = None, 0
            except LeaseGone:
                raise
            except CoordinationError as error:
                level = _log.info if isinstance(error, Unavailable) else _log.warning
                level("a release is repeated until it is answered", partition=partition, epoch=epoch, error=str(error))
                await asyncio.sleep(_AGAIN_S)
        if partition in self._unwritten and self._unwritten[partition].created == created:
            del self._unwritten[partition]
        return result.revision if result.succeeded else 0

    async def _is_detached(self, key: str, created: int) -> bool:
        """Whether this node's owner key was put under no lease. Raises CoordinationError."""
        item = await self._coordination.get(key)
        return item is not None and (item.create_revision, item.lease) == (created, 0)

    async def confirm(self, generation: int, is_current: Callable[[], bool]) -> None:
        """Write that this generation was carried out, as long as it is the newest."""
        record = encode(DoneRecord(generation=generation))
        while is_current():
            try:
                await self._coordination.put(names.key(self._cluster, "done", self._id), record, self._lease)
                return
            except LeaseGone:
                return  # the lease's keeper gets the same error
            except CoordinationError as error:
                _log.info("not confirmed yet", generation=generation, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    # ---- values of owner keys

    def mark(self, partition: int, created: int, lease: int) -> None:
        """Schedule a rewrite of the key, with its epoch and under the node's lease, if it is under this `lease`."""
        self._unwritten[partition] = _Unwritten(created, lease)
        self._has_unwritten.set()

    async def write_epochs(self) -> None:
        """Write the epochs into the owner keys, for readers of their values; many keys per transaction."""
        while True:
            await self._has_unwritten.wait()
            await asyncio.sleep(_TOGETHER_S)
            self._has_unwritten.clear()
            while self._unwritten:
                some = [self._unwritten.popitem() for _ in range(min(_MOST_OPS, len(self._unwritten)))]
                if not await self._write(some) and len(some) > 1:
                    for each in some:  # one of them was released meanwhile
                        await self._write([each])

    async def _write(self, some: list[tuple[int, _Unwritten]]) -> bool:
        """Rewrite these keys. Returns False if one of them has changed."""
        compare: list[Compare] = []
        puts: list[PutKey] = []
        for partition, (created, lease) in some:
            key, base = self.key(partition), self._bases.get((partition, created), 0)
            compare += [CreatedAt(key, created), HeldUnder(key, lease)]
            record = OwnerRecord(id=self._id, epoch=base + created, base=base, before=[*self.previous(partition)])
            puts.append(PutKey(key, encode(record), self._lease))
        while True:
            try:
                return (await self._coordination.txn(compare, puts)).succeeded
            except LeaseGone:
                return True  # the keys have expired with it
            except CoordinationError as error:
                _log.debug("epochs not published", error=str(error))
                await asyncio.sleep(_PAUSE_S)
