"""Writes settle logs: one guarded append per dirty lane and interval. Then the truncator removes what is durable.

If the owners of another cluster remove the messages, they follow the watermarks in these logs. Once a lane is idle,
the settler appends an empty record, because the watermark in the last record lies before that record's own messages.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.log_state import is_same_lease
from evenlane.engine.core.lane.settle_log import HEADERS
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import LogMoved, Lost, Refused
from evenlane.engine.core.records import settle_record
from evenlane.engine.node.settle.lane_tasks import LaneTasks
from evenlane.engine.node.settle.settle_log_reader import read_settle_log, report_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.settle_log import Append
    from evenlane.engine.core.ports import Store
    from evenlane.engine.node.settle.removal_bound import RemovalBound
    from evenlane.engine.node.settle.stream_verifier import StreamVerifier
    from evenlane.engine.node.settle.truncator import StreamTruncator
    from evenlane.engine.node.signals.dirty_lanes import DirtyLanes
    from evenlane.engine.node.signals.events import NodeEvents
    from evenlane.engine.node.signals.work_signal import WorkSignal

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_NEVER = 1 << 62  # ns
_PAUSE_S = 0.2
_LOOK_S = 0.02
_IDLE = _SECOND  # the time after which a lane is idle


class Settler:
    """Makes settled messages durable.

    `events` is notified when another owner has written to a lane's log.

    Invariants:
    - At most one append per lane is under way, or one verification or resolution (`_appending`).
    - No message should start from `late_at` (monotonic ns) on: the oldest result has then waited for a second beyond
      the interval. Each flush sets it.
    - `full` is set while more than `most` results aren't durable, and more than twice as many as usually become durable
      per interval. While it is set, no message should start.
    """

    def __init__(
        self,
        store: Store,
        interval_s: float,
        dirty: DirtyLanes,
        verifier: StreamVerifier,
        truncator: StreamTruncator,
        bound: RemovalBound,
        signal: WorkSignal,
        events: NodeEvents,
        most: int,
    ) -> None:
        self._store, self._interval, self._dirty = store, interval_s, dirty
        self._verifier, self._signal, self._events = verifier, signal, events
        self._dirty_lanes, self.truncator, self._bound = dirty.lanes, truncator, bound
        self._appending = LaneTasks(events)
        self._task: asyncio.Task[None] | None = None
        self._most_wait = int(interval_s * _SECOND) + _SECOND  # ns
        self.late_at = _NEVER
        self.full = False
        self._lagging = False  # the last flush found a late result, and logged it
        self._most = most
        self._written = self._usual = 0  # results cut into records: in this interval, and in a recent busy one

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._run(), name="settler")
        return self._task

    def tend(self, lane: Lane) -> None:
        """Remove the settled messages of a lane that its previous owner didn't remove."""
        self.truncator.watch(lane, moved=False)
        self._dirty.changed.set()

    def lag(self, now: int) -> int:
        """The time (ns) for which the oldest result hasn't been durable; `now` is monotonic ns."""
        waiting = [oldest for lane in self._dirty_lanes if (oldest := lane.log.oldest_unsynced()) is not None]
        return max(0, now - min(waiting, default=now))

    def weigh(self) -> None:
        """Check whether the settler is full; if so, write everything at once."""
        if self._is_full() and not self.full:
            self.full = True
            self._flush()

    def _is_full(self) -> bool:
        return sum(lane.log.unsynced_count for lane in self._dirty_lanes) > max(self._most, 2 * self._usual)

    def _ease(self) -> None:
        if self.full and not self._is_full():
            self.full = False
            self._signal.notify()

    async def stop(self, deadline: float) -> bool:
        """Write the remaining results until the loop's time `deadline`. True if all became durable."""
        loop = asyncio.get_running_loop()
        while self._dirty_lanes and loop.time() < deadline:
            self._flush()
            await asyncio.sleep(0.01)
        clean = not self._dirty_lanes
        tasks = [
            *self._appending.by_lane.values(),
            *self.truncator.tasks.by_lane.values(),
            *([self._task] if self._task else []),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return clean

    def discard(self, lane: Lane) -> None:
        """Write and remove nothing more for this lane."""
        self._dirty_lanes.pop(lane, None)
        self._ease()
        self._appending.cancel(lane)
        self.truncator.discard(lane)

    def flush(self, lane: Lane) -> None:
        """Write the lane's results now, not at the end of the interval."""
        self._append(lane, now_ns())

    async def prove(self, lanes: Callable[[], Iterable[Lane]]) -> None:
        """Return once the log of each lane has taken a record that was cut after this call, or has fenced the lane."""
        before: dict[Lane, int] = {}
        while True:
            asked = [each for each in lanes() if not (each.fenced or each.log.closed)]
            unproven = [each for each in asked if each.log.durable_number <= before.setdefault(each, each.log.number)]
            if not unproven:
                return
            for lane in unproven:
                self._append(lane, now_ns(), fence=True)
            await asyncio.sleep(_LOOK_S)

    async def _run(self) -> None:
        while True:
            if not self._dirty_lanes and not self.truncator.lanes:
                self._dirty.changed.clear()
                await self._dirty.changed.wait()
            await asyncio.sleep(self._interval)
            self._flush()
            self._usual, self._written = max(self._written, self._usual * 7 // 8), 0
            if self._bound.is_publisher:
                self._publish_watermarks(now_ns())
            self.truncator.step()

    def _publish_watermarks(self, now: int) -> None:
        for lane in list(self.truncator.lanes):
            if lane.log.lacks_watermark and now - lane.log.logged_at >= _IDLE:
                self._append(lane, now, fence=True)

    def _flush(self) -> None:
        now, oldest = now_ns(), _NEVER
        for lane in list(self._dirty_lanes):
            since = lane.log.oldest_unsynced()
            if since is None and not (lane.log.checkpoint_due or lane.must_close):
                del self._dirty_lanes[lane]
                continue
            if since is not None:
                oldest = min(oldest, since)
            self._append(lane, now)
        was_late, self.late_at = now >= self.late_at, oldest + self._most_wait
        self._log_lag(now >= self.late_at)
        if was_late and now < self.late_at:
            self._signal.notify()

    def _log_lag(self, lagging: bool) -> None:
        if lagging and not self._lagging:
            _log.warning("settles lag: nothing new is started", lag_s=round(self.lag(now_ns()) / _SECOND, 3))
        elif self._lagging and not lagging:
            _log.info("settles are durable again")
        self._lagging = lagging

    def _append(self, lane: Lane, now: int, *, fence: bool = False) -> None:
        if lane in self._appending.by_lane or lane.fenced:
            return
        if lane.verified != self._store.incarnation:
            self._spawn(lane, partial(self._verify, lane))
            return
        append = lane.next_append(now, fence=fence)
        if append is None:
            return
        self._written += len(append.sequences)
        raw = settle_record.encode(append.record, self._bound.record_version)
        if append.record.checkpoint and len(raw) > self._store.max_payload - HEADERS:
            lane.log.withdraw(append)
            lane.log.defer_checkpoint()
            return
        future = self._store.append_log(lane.id, raw, lane.log.position, checkpoint=append.record.checkpoint)
        future.add_done_callback(partial(self._on_answer, lane, append))

    def _spawn(self, lane: Lane, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._appending.run(lane, work(), "settle")

    async def _verify(self, lane: Lane) -> None:
        with suppress(Lost, Refused):
            await self._verifier.verify(lane)
            return
        await asyncio.sleep(_PAUSE_S)

    def _on_answer(self, lane: Lane, append: Append, future: asyncio.Future[int]) -> None:
        if lane.fenced:  # it was handed over meanwhile: the handoff has the content of this append as well
            future.cancelled() or future.exception()
            return
        try:
            lane.log.position = future.result()
        except (LogMoved, Lost, Refused) as error:
            _log.debug("append unsure", **lane_fields(lane), error=str(error))
            self._spawn(lane, partial(self._resolve, lane, append))
        except asyncio.CancelledError:
            lane.log.withdraw(append)
        else:
            self._on_durable(lane, append)

    def _on_durable(self, lane: Lane, append: Append) -> None:
        before = lane.removal.durable_watermark
        lane.log.on_append(append, now_ns())
        self._ease()
        self.truncator.watch(lane, moved=lane.removal.durable_watermark > before)

    async def _resolve(self, lane: Lane, append: Append) -> None:
        """Find out from the log itself whether the append is stored, or another owner has taken over."""
        while True:
            try:
                log, position = await read_settle_log(self._store, lane.id, lane.epoch)
                report_unreadable(lane, log)
                break
            except (Lost, Refused) as failure:
                _log.debug("log not read yet", **lane_fields(lane), error=str(failure))
            except settle_record.UnknownVersion as error:  # from a higher epoch: presumably a newer owner
                if not lane.fenced:
                    lane.fenced = True
                    self._events.on_fenced(lane, str(error))
                return
            await asyncio.sleep(_PAUSE_S)
        if lane.fenced:
            return  # it was handed over meanwhile
        lane.log.position = position
        # a checkpoint removes unreadable records
        lane.log.checkpoint_due = lane.log.checkpoint_due or log.unreadable > 0
        same = log.epoch == lane.epoch and is_same_lease(log.lease, lane.lease)
        if log.epoch >= lane.epoch and not same:  # epochs can be equal after an etcd rollback
            lane.fenced = True
            self._events.on_fenced(lane, "a newer owner has taken over")
        elif same and log.number == append.record.number:
            self._on_durable(lane, append)
        else:
            lane.log.withdraw(append)
            # if the log isn't where this epoch left it, it was lost or rolled back: write everything again
            if not same or log.number != lane.log.durable_number:
                lane.log.checkpoint_due = True
            self._dirty.mark(lane)
