"""One partition under one epoch: takes it over, feeds it, and feeds it again when a stream was replaced."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.node.partitions.delay_feed import DelayFeed
from evenlane.engine.node.partitions.lane_feed import LaneFeed
from evenlane.engine.node.partitions.previous_owners import PreviousOwners
from evenlane.engine.node.partitions.takeover import recover
from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.ports import BusyRecord, Store
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.partitions.due_release import DueReleaser
    from evenlane.engine.node.partitions.gap_reader import GapReader
    from evenlane.engine.node.partitions.queue_resolver import QueueResolver
    from evenlane.engine.node.partitions.read_ahead import ReadAhead
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.removal_bound import RemovalBound
    from evenlane.engine.node.settle.settler import Settler
    from evenlane.engine.node.settle.stream_verifier import StreamVerifier
    from evenlane.engine.node.tuning import NodeTuning
    from evenlane.ring.membership.records import HeldRecord, PastOwner

T = TypeVar("T")

_PAUSE_S = 0.2


@dataclass(frozen=True)
class PartitionContext:
    """The parts of the node that all of its partitions use. `kinds` are those of a partition's streams, `bands` maps
    priorities to bands, `busy` reads the in-flight records.
    """

    store: Store
    kinds: Sequence[Kind]
    limits: MemoryBudget
    bands: Mapping[str, int]
    resolver: QueueResolver
    ready: ReadyQueues
    eligibility: Eligibility
    verifier: StreamVerifier
    settler: Settler
    due: DueReleaser
    busy: Callable[[], Awaitable[list[BusyRecord]]]
    ahead: ReadAhead
    gaps: GapReader
    bound: RemovalBound
    tuning: NodeTuning


class Partition:
    """The lane and the delay streams of a partition, their feeds, and the messages held by previous owners
    (`previous_owners`). `delay_lanes` has the delay stream, and in a named subscription's cluster its part of the
    stream of retries; `lanes` has the lane before them.

    Invariant: `opened` is set once feeds of all streams are open; `opened_at` is then the time (monotonic ns). After
    `close`, feeds that were being opened are closed again.
    """

    def __init__(self, context: PartitionContext, number: int, epoch: int, lease: int) -> None:
        self._context, self.number = context, number
        store, limits, ready = context.store, context.limits, context.ready
        self._store, self._verifier = store, context.verifier
        self.lanes = tuple(
            FedLane(LaneId(kind, number), epoch, limits, context.resolver, lease) for kind in context.kinds
        )
        self.lane, *self.delay_lanes = self.lanes
        self.catch_up_priority = CatchUpPriority(ready.on_queue_ready, context.bands, context.tuning.backlog_wait_s)
        self.previous_owners = PreviousOwners(store, self.lanes, context.busy, ready, context.eligibility)
        self._lane_feeds = LaneFeed(
            store, self.lane, ready, context.verifier, self.catch_up_priority, context.ahead, context.gaps,
            context.tuning,
        )  # fmt: skip
        self._hour_feeds = {
            lane: DelayFeed(store, lane, context.verifier, context.due, context.resolver) for lane in self.delay_lanes
        }
        self._feeds: dict[FedLane, LaneFeed | DelayFeed] = {self.lane: self._lane_feeds, **self._hour_feeds}
        self.opened = self._closed = False
        self.made_at, self.opened_at = now_ns(), 0  # monotonic ns
        self._reopening: dict[FedLane, asyncio.Task[None]] = {}

    @property
    def ended_blocked_s(self) -> int:
        """The longest time (s) for which a handler blocked a previous owner until its process ended itself;
        0 if none did.
        """
        return round(max((seconds for lane in self.lanes for seconds in lane.blocked.values()), default=0.0))

    async def open(
        self, held: Iterable[HeldRecord] = (), known: Collection[PastOwner] | None = None, *, repeated: bool = True
    ) -> None:
        """Take over, except for messages that previous owners still hold. When this returns, the lane's messages are
        being delivered; a large backlog follows after `catch_up`, and delayed messages after `complete`. `known`,
        `repeated`: see `recover`. Raises Fenced, Lost.
        """
        held, context = list(held), self._context
        recovered = await _gather_all(
            recover(
                self._store, lane, context.busy, held, known,
                repeated=repeated, version=lambda: context.bound.record_version,
                chosen=lambda: context.resolver.chosen,
            )
            for lane in self.lanes
        )  # fmt: skip
        for lane, (_, parts) in zip(self.lanes, recovered, strict=True):
            await self.previous_owners.hold(lane, parts)  # all streams: a key may be out in one and wait in another
        await self._lane_feeds.begin(recovered[0][0])

    async def complete(self) -> None:
        """Feed the delay streams, which needn't hold up the first message after a takeover. Raises Lost, Refused."""
        for lane, feeds in self._hour_feeds.items():
            try:
                await feeds.begin()
            except (Lost, Refused):  # the stream may have been deleted since: verifying creates it again
                lane.verified = -1
                await self._verifier.verify(lane)
                raise
            if self._closed:  # meanwhile
                await feeds.drop()
        self.opened, self.opened_at = True, now_ns()

    async def look_again(self) -> None:
        """Verify all streams: a replacement while the feeds were being created goes unnoticed. Raises
        Lost, Refused.
        """
        for lane in self.lanes:
            lane.verified = -1
            await self._verifier.verify(lane)

    def catch_up(self) -> None:
        """See `LaneFeed.catch_up`."""
        if not self._closed:
            self._lane_feeds.catch_up()

    async def feed_later(self) -> None:
        """See `DelayFeed.turn`."""
        for feeds in self._hour_feeds.values():
            await feeds.turn()
            if self._closed:  # meanwhile
                await feeds.drop()

    async def close(self) -> None:
        """Close the feeds."""
        self._closed = True
        for task in self._reopening.values():
            task.cancel()
        await asyncio.gather(*self._reopening.values(), return_exceptions=True)
        later = [feed for feeds in self._hour_feeds.values() for feed in feeds.feeds]
        await asyncio.gather(self._lane_feeds.drop(), *(feed.close() for feed in later))

    async def abandon(self) -> None:
        """Close the feeds, and settle nothing more: the takeover has failed, or another node owns the partition."""
        for lane in self.lanes:
            lane.abandon()
            self._context.settler.discard(lane)
        self._context.eligibility.discard_stale()
        await self.close()

    def feed_again(self, lane: FedLane) -> None:
        """Feed one of `lanes` from the start: its stream was replaced, and the lane is reset."""
        for feed in self._feeds[lane].feeds:
            feed.disturb("the stream was replaced")
        if lane not in self._reopening and not self._closed:
            self._reopening[lane] = asyncio.create_task(self._reopen(lane), name=f"reopen {lane.id}")

    async def _reopen(self, lane: FedLane) -> None:
        feeds = self._feeds[lane]
        try:
            await feeds.drop()
            while True:
                try:
                    await feeds.begin_again()
                    break
                except (Lost, Refused):
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._reopening.pop(lane, None)
        with contextlib.suppress(Lost, Refused):  # (if it fails, the next settle verifies)
            await self._verifier.verify(lane)


async def _gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all. If some fail, raises one of the errors once all have ended."""
    ends = await asyncio.gather(*work, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return cast("list[T]", ends)
