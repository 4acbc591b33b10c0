"""What runs on across a hand-over: handlers that a partition's old owner began and its new owner must not begin again.

The old owner names them in a key (`held/<partition>/<epoch>`) in the very transaction that releases the partition, and
tells there how they end. The last word stands under no lease, so that the old owner may leave; the new one settles what
it says and deletes it. If the old owner dies first, the key goes with its lease, and the new one begins anew what had
not ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import structlog
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, Delete, LeaseGone, ModifiedAt, Put
from evenlane.ring.membership.records import HeldLane, HeldRecord, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.5
_LOOK_S = 0.05
_LET_GO_S = 1.0
_NOTHING: Mapping[str, float] = {}

OnEnd: TypeAlias = "Callable[[asyncio.Task[None]], None]"  # told of the end of a task, in case it is a failure


class HandoffId(NamedTuple):
    """One such key."""

    partition: int
    epoch: int


class HandoffSink(Protocol):
    """What a new owner does with what it is told."""

    def held_changed(self, number: int, record: HeldRecord) -> None: ...

    def held_let_go(self, number: int, record: HeldRecord) -> None: ...

    def held_gone(self, number: int, record: HeldRecord) -> None: ...

    def held_durable(self, number: int, record: HeldRecord) -> bool: ...


class _Followed(NamedTuple):
    """What runs on under a key that was created at `revision`."""

    lanes: Mapping[Kind, HandoffState]
    lent: Mapping[str, float]
    revision: int


class HandoffPublisher:
    """The old owner's side."""

    def __init__(
        self, coordination: Coordination, env: str, node_id: str, lease: int, on_end: OnEnd = lambda _: None
    ) -> None:
        self._coordination, self._env, self._id, self._lease, self._on_end = coordination, env, node_id, lease, on_end
        self._tasks: dict[HandoffId, asyncio.Task[None]] = {}
        self._running: set[HandoffId] = set()
        self._followed: dict[HandoffId, _Followed] = {}
        self._said: dict[HandoffId, HeldRecord] = {}
        self._all_told = asyncio.Event()
        self._all_told.set()

    def record_put(
        self, held: HandoffId, lanes: Mapping[Kind, HandoffState], lent: Mapping[str, float] = _NOTHING
    ) -> list[Put]:
        """What to put in the transaction that releases the partition; nothing if nothing is held. `lent`: see the
        record.
        """
        if not lanes and not lent:
            return []
        record = self._said[held] = self._record(held, lanes, lent)
        if record.running:  # from now on: the watch may tell that the key is there before the answer comes
            self._running.add(held)
            self._all_told.clear()
        return [self._put(held, record)]

    def _record(self, held: HandoffId, lanes: Mapping[Kind, HandoffState], lent: Mapping[str, float]) -> HeldRecord:
        return _record(self._id, held.epoch, lanes, lent, self._lease)

    def _put(self, held: HandoffId, record: HeldRecord) -> Put:
        return Put(_key(self._env, held), encode(record), self._lease if record.running else 0)

    async def follow(self, held: HandoffId, lanes: Mapping[Kind, HandoffState], revision: int) -> None:
        """The partition is released, with the key created at `revision` (0: by a transaction whose answer was lost):
        tell how what it names ends.
        """
        said = self._said.get(held)
        if said is None or not said.running:
            self._said.pop(held, None)
            return
        revision = revision or await self._created_at(held)
        self._followed[held] = _Followed(lanes, said.lent, revision)
        del self._said[held]
        changed = asyncio.Event()
        for lane in lanes.values():
            lane.on_change = changed.set
        if self._record(held, lanes, said.lent) != said:  # meanwhile something has ended
            changed.set()
        task = self._tasks[held] = asyncio.create_task(
            self._tell(held, lanes, said, revision, changed), name=f"held {held}"
        )
        task.add_done_callback(self._on_end)

    async def _created_at(self, held: HandoffId) -> int:
        """The revision at which the key was created, 0 if there is none."""
        while True:
            try:
                found = await self._coordination.get(_key(self._env, held))
                return found.create_revision if found is not None else 0
            except CoordinationError:
                await asyncio.sleep(_PAUSE_S)

    async def _tell(
        self,
        held: HandoffId,
        lanes: Mapping[Kind, HandoffState],
        said: HeldRecord,
        revision: int,
        changed: asyncio.Event,
    ) -> None:
        try:
            while True:
                await changed.wait()
                changed.clear()
                record = self._record(held, lanes, said.lent)
                if not await self._told(held, record, revision) or not record.running:
                    self._followed.pop(held, None)
                    return
        finally:
            self._running.discard(held)
            self._tasks.pop(held, None)
            if not self._running:
                self._all_told.set()

    async def _told(self, held: HandoffId, record: HeldRecord, revision: int) -> bool:
        """Whether anybody is there to be told: not if the key has gone with its lease."""
        while True:
            try:
                put = self._put(held, record)
                return (await self._coordination.txn([CreatedAt(put.key, revision)], [put])).succeeded
            except LeaseGone:
                return False
            except CoordinationError as error:
                _log.debug("not told yet", held=held, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    @property
    def keys(self) -> frozenset[str]:
        """The held keys that etcd may have under this node's lease. For any thread."""
        return frozenset(_key(self._env, held) for held in {*self._said, *self._followed, *self._tasks})

    async def all_told(self, within_s: float) -> bool:
        """Wait until all that was held has ended, and been told."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within_s)):
                await self._all_told.wait()
        return self._all_told.is_set()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def let_go(self) -> None:
        """After `close`: what still runs is left, and has killed nothing. Without this word the next owner would take
        the key's end for a death.
        """
        await asyncio.gather(*(self._let_go(held, of) for held, of in self._followed.items()))
        self._followed.clear()

    async def _let_go(self, held: HandoffId, of: _Followed) -> None:
        for lane in of.lanes.values():
            lane.running.clear()
        put = self._put(held, self._record(held, of.lanes, of.lent))
        try:
            async with asyncio.timeout(_LET_GO_S):
                await self._coordination.txn([CreatedAt(put.key, of.revision)], [put])
        except (CoordinationError, TimeoutError) as error:
            _log.debug("not let go", held=held, error=str(error))


class HandoffReceiver:
    """The new owner's side."""

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        taker: HandoffSink,
        records: RecordReader,
        on_end: OnEnd = lambda _: None,
        is_owned: Callable[[int], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_owned(partition)` asks etcd whether the partition is this node's; it raises CoordinationError."""
        self._coordination, self._env, self._taker, self._on_end = coordination, env, taker, on_end
        self._is_owned = is_owned
        self._known: dict[HandoffId, HeldRecord] = {}
        self._ending: dict[HandoffId, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._records = records
        self._listed = SingleFlight(partial(coordination.list, names.key(env, "held", "")))

    async def of(self, partition: int) -> dict[HandoffId, HeldRecord]:
        """What former owners of a partition hold. Raises CoordinationError."""
        found: dict[HandoffId, HeldRecord] = {}
        for item in (await self._listed.read()).items:
            held = _held(item.key.removeprefix(names.key(self._env, "held", "")))
            if held is None or held.partition != partition:
                continue
            if (record := self._read(item)) is not None:
                found[held] = record
        return found

    def follow(self, known: Mapping[HandoffId, HeldRecord]) -> None:
        """The partition is open, but for these: pass on what becomes of them, and what has since they were read."""
        if not known:
            return
        self._known |= known
        if self._watching is not None:
            self._watching.cancel()  # a new watch begins with all that there is
        self._watching = self._spawn(self._watch(), "held")

    def forget(self, partition: int) -> None:
        """It is ours no more."""
        for held in [held for held in self._known if held.partition == partition]:
            self._drop(held)

    async def close(self) -> None:
        tasks = [*self._ending.values(), *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """As long as anything is held."""
        async with PrefixWatch(self._coordination, names.key(self._env, "held", "")) as items:
            async for told in items:
                if told.whole:
                    there = {_held(name) for name in told.changed}
                    await self._missing([held for held in self._known if held not in there])
                for name, item in told.changed.items():
                    self._changed(name, item)
                for gone in map(_held, told.gone):
                    if gone is not None and gone in self._known:
                        self._gone(gone)
                if not self._known:
                    self._watching = None
                    return

    async def _missing(self, missing: Iterable[HandoffId]) -> None:
        """A listing hasn't these keys. Their owners' handlers have ended, or their leases, unless etcd has gone back to
        a time before: then it hasn't this node's owner key either, which came later.
        """
        for held in missing:
            if held in self._known and await self._is_still_ours(held.partition):
                self._gone(held)

    async def _is_still_ours(self, partition: int) -> bool:
        while self._is_owned is not None:
            try:
                return await self._is_owned(partition)
            except CoordinationError:
                await asyncio.sleep(_PAUSE_S)
        return True

    def _changed(self, name: str, item: KeyValue) -> None:
        held = _held(name)
        if held is None or held not in self._known:
            return
        record = self._read(item)
        if record is None:
            return
        before, self._known[held] = self._known[held], record
        self._taker.held_changed(held.partition, record)
        self._taker.held_let_go(held.partition, _let_go(before, record))
        if not record.running and held not in self._ending:
            self._ending[held] = self._spawn(self._end(held, record, item.mod_revision), f"end {held}")

    def _gone(self, held: HandoffId) -> None:
        record = self._known.get(held)
        if record is None:
            return  # the partition went meanwhile
        self._drop(held)
        self._taker.held_gone(held.partition, record)

    def _drop(self, held: HandoffId) -> None:
        self._known.pop(held, None)
        if (task := self._ending.pop(held, None)) is not None:
            task.cancel()

    async def _end(self, held: HandoffId, record: HeldRecord, revision: int) -> None:
        """Nothing of it runs any more: when all of it is settled here, the key has served."""
        while not self._taker.held_durable(held.partition, record):  # noqa: ASYNC110 - the log tells nobody
            await asyncio.sleep(_LOOK_S)
        self._known.pop(held, None)
        self._ending.pop(held, None)
        key = _key(self._env, held)
        try:
            await self._coordination.txn([ModifiedAt(key, revision)], [Delete(key)])
        except CoordinationError as error:
            _log.debug("left to the next owner", key=key, error=str(error))

    def _read(self, item: KeyValue) -> HeldRecord | None:
        """None if it is no record. Under no lease nothing runs any more, whatever it says: nobody would see its end."""
        record = self._records.read(HeldRecord, item.key, item.value)
        if record is None:
            return None
        return record if item.lease or not record.running else _ended(record)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_end)
        return task


def _ended(record: HeldRecord) -> HeldRecord:
    """With nothing that runs: it is handed out again."""
    lanes = {kind: replace(lane, running=[]) for kind, lane in record.lanes.items()}
    return replace(record, lanes=lanes)


def _let_go(before: HeldRecord, after: HeldRecord) -> HeldRecord:
    """What was said to run, and then neither to run nor to have ended: its handler wasn't started after all, or has
    failed and the message stays where it is.
    """
    lanes: dict[str, HeldLane] = {}
    for kind, lane in before.lanes.items():
        now = after.lanes.get(kind, lane)
        free = {*lane.running} - {*now.running, *now.done}
        failed = [each for each in now.failed if each[0] in free]
        lanes[kind] = HeldLane(created=lane.created, running=sorted(free), failed=failed)
    return HeldRecord(id=before.id, epoch=before.epoch, lease=before.lease, lanes=lanes)


def _key(env: str, held: HandoffId) -> str:
    return names.key(env, "held", held.partition, held.epoch)


def _held(name: str) -> HandoffId | None:
    partition, epoch = (names.number(part) for part in name.partition("/")[::2])
    return HandoffId(partition, epoch) if partition is not None and epoch is not None else None


def _record(
    node: str, epoch: int, lanes: Mapping[Kind, HandoffState], lent: Mapping[str, float] = _NOTHING, lease: int = 0
) -> HeldRecord:
    told: dict[str, HeldLane] = {kind: _of_lane(lane) for kind, lane in lanes.items()}
    return HeldRecord(id=node, epoch=epoch, lease=lease, lanes=told, lent=dict(lent))


def _of_lane(lane: HandoffState) -> HeldLane:
    return HeldLane(
        created=lane.seen.created,
        high=lane.seen.high,
        high_at=lane.seen.high_at,
        running=sorted(lane.running),
        done=sorted(lane.done),
        failed=sorted(lane.failed),
    )
