"""Removes settled messages from their streams: purges up to the watermark, and deletes what stays pinned above it.

What may go of a stream that other subscriptions read, too, is planned in shared_removal.py.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog
from aiolimiter import AsyncLimiter

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.node.settle.lane_tasks import LaneTasks
from evenlane.engine.node.settle.removal_bound import is_own_stream
from evenlane.engine.node.settle.shared_removal import SharedRemovalPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import Store
    from evenlane.engine.node.settle.removal_bound import RemovalBound
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.settle.stream_verifier import StreamVerifier
    from evenlane.engine.node.signals.events import NodeEvents
    from evenlane.engine.node.signals.lease_trust import LeaseTrust

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_DELETES_PER_S = 2_000  # for the node: beyond it, pinned messages simply wait for their purge
# Where queues have a limit, the server counts settled messages as long as they are there.
_PINNED_FOR_LIMITED = _SECOND
_DELETES_PER_S_LIMITED = 10_000
_DELETES_AT_ONCE = 64
_DELETES_IN_TURN = 4 * _DELETES_AT_ONCE
_PAUSE_S = 0.2


class StreamTruncator:
    """Removes the settled messages of lanes. Each lane is purged at most once per `purge_interval_s`. A watermark that
    doesn't move for `pinned_for` (ns) is pinned: settled messages above it are deleted one by one. `limited`: queues
    have a limit, so both happen sooner. `bound` says what other subscriptions allow.
    """

    def __init__(
        self,
        store: Store,
        verifier: StreamVerifier,
        settlement: MessageSettlement,
        trust: LeaseTrust,
        events: NodeEvents,
        bound: RemovalBound,
        *,
        limited: bool,
        purge_interval_s: float,
        pinned_for: int,
    ) -> None:
        self._store, self._verifier, self._settlement, self._trust = store, verifier, settlement, trust
        self._purge_interval = round(purge_interval_s * _SECOND)
        self.pinned_for = _PINNED_FOR_LIMITED if limited else pinned_for
        self.lanes: dict[Lane, int] = {}  # to be looked at; since when (monotonic ns) the watermark is where it is
        self.tasks = LaneTasks(events)
        self._bound = bound
        self._planner = SharedRemovalPlanner(store, bound, self._purge_interval, self.pinned_for)
        self._limiter = AsyncLimiter(_DELETES_PER_S_LIMITED if limited else _DELETES_PER_S, 1)

    def watch(self, lane: Lane, *, moved: bool) -> None:
        """Look after a lane from now on; `moved`: its watermark has just risen."""
        if moved or lane not in self.lanes:
            self.lanes[lane] = now_ns()

    def discard(self, lane: Lane) -> None:
        """Remove nothing more from this lane."""
        self.lanes.pop(lane, None)
        self._planner.discard(lane)
        self._bound.discard(lane)
        self.tasks.cancel(lane)

    def step(self) -> None:
        """Start the next removal of each lane for which one is due; at most one runs per lane."""
        now, is_alone = now_ns(), not self._bound.is_shared
        for lane, since in list(self.lanes.items()):
            if lane in self.tasks.by_lane:
                continue
            if is_alone or is_own_stream(lane):
                self._step_alone(lane, since, now)
            elif self._bound.is_publisher:
                self._step_as_publisher(lane, since, now)
            else:
                self._step_shared(lane, since, now)

    def _step_alone(self, lane: Lane, since: int, now: int) -> None:
        removal = lane.removal
        if removal.durable_watermark > removal.purged:
            if now - removal.last_purge >= self._purge_interval:
                self._remove(lane, partial(self._purge, lane, removal.durable_watermark, now))
        elif not self._is_pinned(lane, since, now):
            return
        elif erasable := removal.choose_erasable(_DELETES_IN_TURN):
            self._remove(lane, partial(self._erase, lane, erasable))
        elif not self._must_probe(lane, since, now) and not lane.log.unsynced_count:
            del self.lanes[lane]

    def _step_as_publisher(self, lane: Lane, since: int, now: int) -> None:
        """Another cluster's owners remove, and follow the settle logs of this one."""
        if not self._is_pinned(lane, since, now) or self._must_probe(lane, since, now):
            return
        if not (lane.log.unsynced_count or lane.log.lacks_watermark):
            del self.lanes[lane]

    def _step_shared(self, lane: Lane, since: int, now: int) -> None:
        is_pinned = self._is_pinned(lane, since, now)
        if is_pinned and self._must_probe(lane, since, now):
            return
        if not self._planner.is_due(lane, now):
            return
        if lane.removal.is_behind:
            self._remove(lane, partial(self._remove_shared, lane, now))
        elif is_pinned and not lane.log.unsynced_count:
            del self.lanes[lane]

    def _is_pinned(self, lane: Lane, since: int, now: int) -> bool:
        return lane.id.kind != "lanes" or now - since > self.pinned_for

    def _must_probe(self, lane: Lane, since: int, now: int) -> bool:
        """Whether to look at the message that pins the watermark; if so, that begins."""
        if lane.removal.last_probe >= since or lane.id.kind != "lanes":
            return False
        self._remove(lane, partial(self._probe, lane, now))
        return True

    def _remove(self, lane: Lane, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Carry out a removal right after verifying that the stream is still the one for which the removal was planned:
        after a rollback, the same sequences belong to other messages.
        """
        generation = lane.generation

        async def carry_out() -> None:
            try:
                lane.verified = -1
                await self._verifier.verify(lane)
                if self._is_same(lane, generation) and self._trust.is_held():  # else a newer owner may remove
                    await work()
                return
            except (Lost, Refused) as error:
                _log.debug("removal put off", **lane_fields(lane), error=str(error))
            await asyncio.sleep(_PAUSE_S)

        self.tasks.run(lane, carry_out(), "erase")

    def _is_same(self, lane: Lane, generation: int) -> bool:
        return lane.generation == generation and lane.verified == self._store.incarnation

    async def _purge(self, lane: Lane, watermark: int, now: int) -> None:
        lane.removal.last_purge = now
        generation = lane.generation
        await self._store.purge(lane.id, watermark + 1, self._trust.is_held)
        if lane.generation == generation:
            lane.removal.note_purged(watermark)

    async def _remove_shared(self, lane: Lane, now: int) -> None:
        generation = lane.generation
        lane.removal.last_purge = now
        plan = await self._planner.plan(lane, now)
        if not self._is_same(lane, generation) or not self._trust.is_held():
            return
        if plan.watermark:
            await self._purge(lane, plan.watermark, now)
        elif plan.sequences:
            await self._erase(lane, plan.sequences)

    async def _erase(self, lane: Lane, sequences: Sequence[int]) -> None:
        generation = lane.generation
        for start in range(0, len(sequences), _DELETES_AT_ONCE):
            part = sequences[start : start + _DELETES_AT_ONCE]
            await self._limiter.acquire(len(part))
            if not self._is_same(lane, generation) or not self._trust.is_held():
                return
            await asyncio.gather(*(self._store.delete(lane.id, sequence) for sequence in part))
            if lane.generation != generation:
                return
            lane.removal.note_erased(part)

    async def _probe(self, lane: Lane, now: int) -> None:
        """Ask for the message that pins the watermark: it may be gone, deleted by hand while it was spilled (E12)."""
        lane.removal.last_probe = now
        sequence, generation = lane.removal.durable_watermark + 1, lane.generation
        if sequence > lane.fed_to:
            return
        found = (await self._store.get(lane.id, [sequence]))[0]
        if found is None and self._is_same(lane, generation):
            self._settlement.settle_missing(lane, sequence, generation)
