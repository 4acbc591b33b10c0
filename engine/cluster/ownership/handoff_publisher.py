"""Publishes the previous owner's side of a handoff: the ends of handlers that outlive its ownership of a partition."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

import structlog

from evenlane.engine.cluster.ownership.handoff import NOTHING_LENT, HandoffId, handoff_key, handoff_record
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, LeaseGone, PutKey
from evenlane.ring.membership.records import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.cluster.ownership.handoff import OnEnd
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import HeldRecord

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.5
_RELEASE_S = 1.0


class _Followed(NamedTuple):
    """Handlers still running under a handoff key that was created at `revision`."""

    lanes: Mapping[Kind, HandoffState]
    lent: Mapping[str, float]
    revision: int


class HandoffPublisher:
    """The previous owner's side, for one session.

    Invariants: `_releasing` has the records of releases under way. `_followed` has released partitions whose handlers
    still run, with a task each in `_tasks` until `close`. `_running` has handoffs with running handlers from
    `record_put` until their last report; `_all_published` is set exactly while `_running` is empty.
    """

    def __init__(
        self, coordination: Coordination, cluster: str, node_id: str, lease: int, on_end: OnEnd = lambda _: None
    ) -> None:
        self._coordination, self._cluster, self._id, self._lease, self._on_end = (
            coordination,
            cluster,
            node_id,
            lease,
            on_end,
        )
        self._tasks: dict[HandoffId, asyncio.Task[None]] = {}
        self._running: set[HandoffId] = set()
        self._followed: dict[HandoffId, _Followed] = {}
        self._releasing: dict[HandoffId, HeldRecord] = {}
        self._all_published = asyncio.Event()
        self._all_published.set()

    def record_put(
        self, held: HandoffId, lanes: Mapping[Kind, HandoffState], lent: Mapping[str, float] = NOTHING_LENT
    ) -> list[PutKey]:
        """Return the puts for the release's transaction; none if nothing is held. `lent`: see `HeldRecord`."""
        if not lanes and not lent:
            return []
        record = self._releasing[held] = self._record(held, lanes, lent)
        if record.is_running:  # before the transaction: the watch may report the key before the answer arrives
            self._running.add(held)
            self._all_published.clear()
        return [self._put(held, record)]

    def _record(self, held: HandoffId, lanes: Mapping[Kind, HandoffState], lent: Mapping[str, float]) -> HeldRecord:
        return handoff_record(self._id, held.epoch, lanes, lent, self._lease)

    def _put(self, held: HandoffId, record: HeldRecord) -> PutKey:
        return PutKey(handoff_key(self._cluster, held), encode(record), self._lease if record.is_running else 0)

    async def follow(self, held: HandoffId, lanes: Mapping[Kind, HandoffState], revision: int) -> None:
        """Publish how the handlers end, now that the partition is released.

        `revision` is the key's create-revision, 0 if the release's answer was lost.
        """
        released = self._releasing.get(held)
        if released is None or not released.is_running:
            self._releasing.pop(held, None)
            return
        revision = revision or await self._read_created_at(held)
        self._followed[held] = _Followed(lanes, released.lent, revision)
        del self._releasing[held]
        changed = asyncio.Event()
        for lane in lanes.values():
            lane.on_change = changed.set
        if self._record(held, lanes, released.lent) != released:  # a handler has ended since the release
            changed.set()
        task = self._tasks[held] = asyncio.create_task(
            self._publish_ends(held, lanes, released, revision, changed), name=f"held {held}"
        )
        task.add_done_callback(self._on_end)

    async def _read_created_at(self, held: HandoffId) -> int:
        """Return the key's create-revision, 0 if there is no key."""
        while True:
            try:
                found = await self._coordination.get(handoff_key(self._cluster, held))
                return found.create_revision if found is not None else 0
            except CoordinationError:
                await asyncio.sleep(_PAUSE_S)

    async def _publish_ends(
        self,
        held: HandoffId,
        lanes: Mapping[Kind, HandoffState],
        released: HeldRecord,
        revision: int,
        changed: asyncio.Event,
    ) -> None:
        try:
            while True:
                await changed.wait()
                changed.clear()
                record = self._record(held, lanes, released.lent)
                if not await self._publish(held, record, revision) or not record.is_running:
                    self._followed.pop(held, None)
                    return
        finally:
            self._running.discard(held)
            self._tasks.pop(held, None)
            if not self._running:
                self._all_published.set()

    async def _publish(self, held: HandoffId, record: HeldRecord, revision: int) -> bool:
        """Write the record. Returns False if the key has expired with its lease, so that no node reads it."""
        while True:
            try:
                put = self._put(held, record)
                return (await self._coordination.txn([CreatedAt(put.key, revision)], [put])).succeeded
            except LeaseGone:
                return False
            except CoordinationError as error:
                _log.debug("not published yet", held=held, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    @property
    def keys(self) -> frozenset[str]:
        """Held keys that etcd may have under this node's lease. Thread-safe."""
        return frozenset(handoff_key(self._cluster, held) for held in {*self._releasing, *self._followed, *self._tasks})

    async def wait_until_published(self, within_s: float) -> bool:
        """Wait until all held handlers have ended and their ends are published, `within_s` seconds at most. Returns
        whether they have.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, within_s)):
                await self._all_published.wait()
        return self._all_published.is_set()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def publish_release(self) -> None:
        """Publish, after `close`, that the handlers still running were released without a crash.

        Otherwise the next owner would take the key's expiry for a crash of this node.
        """
        await asyncio.gather(*(self._publish_release(held, of) for held, of in self._followed.items()))
        self._followed.clear()

    async def _publish_release(self, held: HandoffId, of: _Followed) -> None:
        for lane in of.lanes.values():
            lane.running.clear()
        put = self._put(held, self._record(held, of.lanes, of.lent))
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._coordination.txn([CreatedAt(put.key, of.revision)], [put])
        except (CoordinationError, TimeoutError) as error:
            _log.debug("not released", held=held, error=str(error))
