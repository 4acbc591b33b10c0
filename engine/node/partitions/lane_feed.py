"""Feeds a lane: with one feed, or with two while a large backlog is delivered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.task_errors import log_failure
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost, Refused, SubjectBacklogs
from evenlane.engine.node.queues.catch_up_priority import by_band
from evenlane.engine.node.tuning import DEFAULT, NodeTuning

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.core.ports import Feed, LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.partitions.gap_reader import GapReader
    from evenlane.engine.node.partitions.read_ahead import ReadAhead
    from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.stream_verifier import StreamVerifier

_log = structlog.get_logger(__name__)

_AHEAD_AT_MOST = 200  # queues read ahead per partition
_FIRST = 4  # queues read ahead before `catch_up`, so that each partition has messages as soon as it is open


def _do_nothing() -> None:
    """The catch-up of a lane without one."""


class LaneFeed:
    """One pull consumer for new messages, and in a large backlog a second one for the backlog.

    Until the backlog has been delivered, lower bands wait for more urgent messages. With a small backlog, all lower
    bands wait; with a large one, only those of a group that has more urgent messages in the backlog. The small queues
    of a large backlog, which are usually the urgent ones, are read ahead of it (`ahead`), and no band waits for them.
    """

    def __init__(
        self,
        store: Store,
        lane: FedLane,
        ready: ReadyQueues,
        verifier: StreamVerifier,
        catch_up_priority: CatchUpPriority,
        ahead: ReadAhead,
        gaps: GapReader,
        tuning: NodeTuning = DEFAULT,
    ) -> None:
        self._tuning = tuning
        self._store, self._lane, self._ready, self._verifier = store, lane, ready, verifier
        self._catch_up_priority, self._ahead, self._gaps = catch_up_priority, ahead, gaps
        self._reading: asyncio.Task[None] | None = None
        self.feeds: list[Feed] = []
        self._catch_up: Callable[[], None] = _do_nothing

    async def begin(self, state: LaneState) -> None:
        """Feed new messages, and the backlog; a large backlog only after `catch_up`. Raises Lost."""
        lane, catch_up_priority = self._lane, self._catch_up_priority
        catch_up_priority.end()  # the stream was replaced, perhaps: its backlog won't come any more
        catch_up_priority.expect_anything()
        try:
            await self._gaps.read(lane, state)
        except BaseException:
            catch_up_priority.end()
            raise
        if state.last <= lane.position:
            catch_up_priority.end()
            self.feeds = [
                self._store.feed(lane.id, lane.position + 1, lane.take_in, self._resume, on_head=lane.take_in_head)
            ]
            return
        if (backlog := state.last - lane.position) <= self._tuning.tail_beyond:
            self._feed_all(state.last)
            if backlog > self._tuning.small:
                self._start_apart(self._find_out(state, lane.position), "find out")
            return
        generation, backlogs = lane.generation, await self._count_backlog(state, lane.position)
        if lane.generation != generation:
            raise Lost("the stream was replaced meanwhile")
        self._feed_tail(backlogs, state.last)

    async def _count_backlog(self, state: LaneState, position: int) -> SubjectBacklogs:
        """The messages of each subject in the backlog, which begins after `position`. The stream may also have many
        settled messages, which other subscriptions need: then a count may be too high.
        """
        if position - state.first < self._tuning.small:
            return SubjectBacklogs(await self._store.counts(self._lane.id), {})
        return await self._store.backlog_after(self._lane.id, position)

    async def _find_out(self, state: LaneState, position: int) -> None:
        """Read the subjects of the backlog, so that only those queues wait that have to."""
        generation = self._lane.generation
        with contextlib.suppress(Lost, Refused):
            backlogs = await self._count_backlog(state, position)
            if self._lane.generation == generation:
                self._catch_up_priority.narrow(subject.encode() for subject in backlogs.counts)

    def _start_apart(self, work: Coroutine[object, object, None], name: str) -> None:
        self._reading = asyncio.create_task(work, name=f"{name} {self._lane.id}")
        self._reading.add_done_callback(log_failure)

    def _feed_all(self, last: int) -> None:
        """Open one feed for the backlog, up to `last`, and for new messages."""
        lane = self._lane

        def take_in(subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
            lane.take_in(subject, sequence, at, headers, body)
            if sequence >= last:
                feed.sink = lane.take_in
                self._catch_up_priority.end()

        def take_in_head(subject: bytes, sequence: int, at: int, headers: bytes, size: int) -> bool:
            taken = lane.take_in_head(subject, sequence, at, headers, size)
            if sequence == last:
                self._catch_up_priority.end()
            return taken

        self._catch_up_priority.begin()
        feed = self._store.feed(
            lane.id, lane.position + 1, take_in, self._resume, on_end=self._catch_up_priority.end, on_head=take_in_head
        )
        self.feeds = [feed]

    def _feed_tail(self, backlogs: SubjectBacklogs, last: int) -> None:
        """Open one feed for new messages, and another one, after `catch_up`, for the backlog up to `last`."""
        lane = self._lane
        start, generation = lane.position, lane.generation
        lane.expect_backlog(backlogs.counts, last, backlogs.ends)
        ahead = self._choose_read_ahead(last - start)
        self._catch_up_priority.narrow(lane.lacking - {*ahead})
        tail = self._store.feed(lane.id, last + 1, lane.take_in_tail, self._resume_tail, on_head=lane.take_in_head)

        def on_caught_up() -> None:
            behind = lane.end_catch_up(last)
            _log.info("caught up", **lane_fields(lane), messages=last - start)
            tail.sink = lane.take_in
            self._catch_up_priority.end()
            for queue in by_band(behind):
                self._ready.on_queue_ready(queue)

        released = asyncio.Event()  # set by `catch_up`

        async def read_ahead() -> None:
            await self._ahead.read(lane, ahead[:_FIRST], self._ready.on_queue_ready)
            await released.wait()
            await self._ahead.read(lane, ahead[_FIRST:], self._ready.on_queue_ready)

        def catch_up() -> None:
            if lane.generation == generation:
                feed = self._store.feed(
                    lane.id, lane.position + 1, lane.take_in, self._resume, until=last, on_end=on_caught_up,
                    on_head=lane.take_in_head,
                )  # fmt: skip
                self.feeds.insert(0, feed)
                self._catch_up_priority.begin()
                released.set()

        self._start_apart(read_ahead(), "read ahead")
        self.feeds, self._catch_up = [tail], catch_up

    def _choose_read_ahead(self, backlog: int) -> list[bytes]:
        """The subjects of small queues, most urgent first."""
        lane = self._lane
        few = lane.smallest(min(_AHEAD_AT_MOST, backlog // self._tuning.for_each))
        queues = {queue: subject for subject in few if (queue := lane.queue_of(subject)) is not None}
        return [queues[queue] for queue in by_band(queues)]

    def catch_up(self) -> None:
        """Start feeding a large backlog, if there is one. A node that takes over several partitions opens all of them
        first: a catch-up takes most of the event loop's time.
        """
        self._catch_up()
        self._catch_up = _do_nothing

    async def begin_again(self) -> None:
        """Feed a stream that was replaced. Raises Lost, Refused."""
        await self.begin(await self._store.state(self._lane.id))
        self.catch_up()

    async def drop(self) -> None:
        """Close the feeds."""
        self._catch_up_priority.give_up()
        if self._reading is not None:
            self._reading.cancel()
        feeds, self.feeds = self.feeds, []
        await asyncio.gather(*(feed.close() for feed in feeds))

    # A feed also breaks when its stream is deleted: nothing is settled or purged until that is ruled out.

    async def _resume(self, _last: int) -> int:
        self._lane.verified = -1
        await self._verifier.verify(self._lane)
        return self._lane.position + 1

    async def _resume_tail(self, _last: int) -> int:
        self._lane.verified = -1
        await self._verifier.verify(self._lane)
        return self._lane.fed_to + 1
