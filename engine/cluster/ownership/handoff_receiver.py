"""Follows the next owner's side of a handoff: the outcome of handlers that previous owners left running."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.cluster.ownership.handoff import find_released, handoff_key, parse_handoff
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.ring.coordination.ports import CoordinationError, DeleteKey, ModifiedAt
from evenlane.ring.membership.records import HeldRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from evenlane.engine.cluster.ownership.handoff import HandoffId, OnEnd
    from evenlane.engine.cluster.ownership.partition_host import HandoffSink
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.5
_LOOK_S = 0.05


class HandoffReceiver:
    """The next owner's side, for one session.

    Invariants: `_known` has the last record of each handoff that is followed; `_ending` has a task for each of them
    without running handlers. `_watching` is set while the watch runs.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        taker: HandoffSink,
        records: RecordReader,
        on_end: OnEnd = lambda _: None,
        is_owned: Callable[[int], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_owned(partition)` asks etcd whether this node owns the partition; it raises CoordinationError."""
        self._coordination, self._cluster, self._taker, self._on_end = coordination, cluster, taker, on_end
        self._is_owned = is_owned
        self._known: dict[HandoffId, HeldRecord] = {}
        self._ending: dict[HandoffId, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._records = records
        self._listed = SingleFlight(partial(coordination.list, names.key(cluster, "held", "")))

    async def read_records(self, partition: int) -> dict[HandoffId, HeldRecord]:
        """Return the handoff records of a partition's previous owners. Raises CoordinationError; NewerFormat if a newer
        release has written one of them.
        """
        found: dict[HandoffId, HeldRecord] = {}
        for item in (await self._listed.read()).items:
            held = parse_handoff(item.key.removeprefix(names.key(self._cluster, "held", "")))
            if held is None or held.partition != partition:
                continue
            record = self._records.read_known(HeldRecord, item.key, item.value)
            if record is not None:
                found[held] = _check_running(item, record)
        return found

    def follow(self, known: Mapping[HandoffId, HeldRecord]) -> None:
        """Pass on changes of these records, including changes since they were read. Their partition is now open."""
        if not known:
            return
        self._known |= known
        if self._watching is not None:
            self._watching.cancel()  # a new watch starts with a full listing
        self._watching = self._spawn(self._watch(), "held")

    def discard(self, partition: int) -> None:
        """Stop following the partition, which this node no longer owns."""
        for held in [held for held in self._known if held.partition == partition]:
            self._drop(held)

    async def close(self) -> None:
        tasks = [*self._ending.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Watch handoff keys as long as any is followed."""
        async with PrefixWatch(self._coordination, names.key(self._cluster, "held", "")) as items:
            async for update in items:
                if update.whole:
                    there = {parse_handoff(name) for name in update.changed}
                    await self._on_missing([held for held in self._known if held not in there])
                for name, item in update.changed.items():
                    self._on_change(name, item)
                for gone in map(parse_handoff, update.gone):
                    if gone is not None and gone in self._known:
                        self._on_gone(gone)
                if not self._known:
                    self._watching = None
                    return

    async def _on_missing(self, missing: Iterable[HandoffId]) -> None:
        """Handle keys that are missing from a listing. Either their owners' handlers or leases have ended, or etcd was
        rolled back.

        A rollback also removes this node's owner key, which was created later.
        """
        for held in missing:
            if held in self._known and await self._is_still_ours(held.partition):
                self._on_gone(held)

    async def _is_still_ours(self, partition: int) -> bool:
        while self._is_owned is not None:
            try:
                return await self._is_owned(partition)
            except CoordinationError:
                await asyncio.sleep(_PAUSE_S)
        return True

    def _on_change(self, name: str, item: KeyValue) -> None:
        held = parse_handoff(name)
        if held is None or held not in self._known:
            return
        record = self._records.read(HeldRecord, item.key, item.value)
        if record is None:
            return
        record = _check_running(item, record)
        before, self._known[held] = self._known[held], record
        self._taker.on_held_change(held.partition, record)
        self._taker.on_held_release(held.partition, find_released(before, record))
        if not record.is_running and held not in self._ending:
            self._ending[held] = self._spawn(self._end(held, record, item.mod_revision), f"end {held}")

    def _on_gone(self, held: HandoffId) -> None:
        record = self._known.get(held)
        if record is None:
            return  # the partition was lost meanwhile
        self._drop(held)
        self._taker.on_held_gone(held.partition, record)

    def _drop(self, held: HandoffId) -> None:
        self._known.pop(held, None)
        if (task := self._ending.pop(held, None)) is not None:
            task.cancel()

    async def _end(self, held: HandoffId, record: HeldRecord, revision: int) -> None:
        """Wait until all messages of a record without running handlers are settled here, then delete its key."""
        while not self._taker.is_held_durable(held.partition, record):  # noqa: ASYNC110 - the log sends no notification
            await asyncio.sleep(_LOOK_S)
        self._known.pop(held, None)
        self._ending.pop(held, None)
        key = handoff_key(self._cluster, held)
        try:
            await self._coordination.txn([ModifiedAt(key, revision)], [DeleteKey(key)])
        except CoordinationError as error:
            _log.debug("left to the next owner", key=key, error=str(error))

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_end)
        return task


def _check_running(item: KeyValue, record: HeldRecord) -> HeldRecord:
    """Return the record. A key under no lease has no running handlers, as their end would never be reported."""
    return record if item.lease or not record.is_running else _drop_running(record)


def _drop_running(record: HeldRecord) -> HeldRecord:
    """Return the record without running handlers, so that their messages are handled again."""
    lanes = {kind: replace(lane, running=[]) for kind, lane in record.lanes.items()}
    return replace(record, lanes=lanes)
