"""What feeds a lane: one feed, or two while a large backlog comes in."""

from __future__ import annotations

import asyncio
import contextlib
from operator import attrgetter
from typing import TYPE_CHECKING

import structlog

from engine.ports import Lost
from engine.strays import Stray, queue_named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from engine.index import Queue
    from engine.lane import Lane
    from engine.ports import Feed, LaneState, Store

_log = structlog.get_logger(__name__)

TAIL_BEYOND = 5_000  # messages of backlog from which a tail feed runs beside the catch-up
_FEW = 256  # messages of a queue that are read by its subject, rather than wait for the catch-up
_AHEAD_AT_MOST = 200  # queues of one partition
_SMALL = 1_000  # messages of backlog that come in so soon that it isn't asked whose they are
_PATIENCE_S = 1.0  # for a backlog to come in, before lower bands go nevertheless


def _nothing() -> None:
    """Where no backlog waits."""


def _by_band(queues: Iterable[Queue]) -> list[Queue]:
    """The most urgent first."""
    return sorted(queues, key=attrgetter("band"))


def most_urgent(subjects: Iterable[bytes], bands: Mapping[str, int]) -> dict[tuple[str, int], int]:
    """Of each project's group, the most urgent band among these subjects of a lane; what names no queue is left out."""
    found: dict[tuple[str, int], int] = {}
    for subject in subjects:
        with contextlib.suppress(Stray):
            project, group, band = queue_named(subject, "lanes", bands)
            found[project, group] = min(band, found.get((project, group), band))
    return found


class LaneFeeds:
    """`verify` confirms the lane's identity; `at_hand` is told of queues that can be read by their subject, and of
    those that had to wait; `bands` are known by priority.

    Until the backlog has come in, the lower bands of a group wait if it holds something more urgent of it, which may
    stand behind them in the stream; in a small one, all lower bands. In a large one the small queues, and so what is
    urgent most often, are read by their subject, and nothing waits for those.
    """

    def __init__(
        self,
        store: Store,
        lane: Lane,
        at_hand: Callable[[Queue], None],
        verify: Callable[[Lane], Awaitable[None]],
        bands: Mapping[str, int],
    ) -> None:
        self._store, self._lane, self._at_hand, self._verify = store, lane, at_hand, verify
        self._bands = bands
        self.feeds: list[Feed] = []
        self._first: dict[tuple[str, int], int] = {}  # by group, the most urgent band that may still come in
        self._any = False  # of any group anything may
        self._waiting: dict[Queue, None] = {}  # of the lane, or of its later stream
        self._patience: asyncio.TimerHandle | None = None
        self._catch_up: Callable[[], None] = _nothing

    async def begin(self, state: LaneState) -> None:
        """Feed what comes from now on, and what there is; but a large backlog after `catch_up`. Raises Lost."""
        lane = self._lane
        self._came_in()  # (what was waited for in a stream that was replaced)
        if state.last <= lane.position:
            self.feeds = [self._store.feed(lane.id, lane.position + 1, lane.take_in, self._resume)]
            return
        if state.last - lane.position <= _SMALL:
            self._any = True
            self._feed_all(state.last)
            return
        start, generation, counts = lane.position, lane.generation, await self._store.counts(lane.id)
        if lane.generation != generation:
            raise Lost("the stream was replaced meanwhile")
        if state.last - start <= TAIL_BEYOND:
            self._first = most_urgent((subject.encode() for subject in counts), self._bands)
            self._feed_all(state.last)
            return
        lane.expect_backlog(counts, state.last)
        few = lane.take_ahead(_FEW, _AHEAD_AT_MOST)
        self._first = most_urgent(lane.lacking, self._bands)
        tail = self._store.feed(lane.id, state.last + 1, lane.take_in_tail, self._resume_tail)

        def caught_up() -> None:
            behind = lane.caught_up(state.last)
            _log.info("caught up", partition=lane.id.partition, messages=state.last - start)
            tail.sink = lane.take_in
            self._came_in()
            for queue in _by_band(behind):
                self._at_hand(queue)

        self.feeds = [tail]
        for queue in _by_band(few):
            self._at_hand(queue)

        def catch_up() -> None:
            if lane.generation == generation:
                feed = self._store.feed(
                    lane.id, lane.position + 1, lane.take_in, self._resume, until=state.last, on_end=caught_up
                )
                self.feeds.insert(0, feed)
                self._wait_for_it()

        self._catch_up = catch_up

    def _feed_all(self, last: int) -> None:
        """One feed for what there is, up to `last`, and for what comes from now on."""
        lane = self._lane

        def take_in(subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
            lane.take_in(subject, sequence, at, headers, body)
            if sequence >= last:
                feed.sink = lane.take_in
                self._came_in()

        self._wait_for_it()
        feed = self._store.feed(lane.id, lane.position + 1, take_in, self._resume, on_end=self._came_in)
        self.feeds = [feed]

    def must_wait(self, queue: Queue) -> bool:
        """Whether something more urgent of its group may still come in."""
        return queue.band > (0 if self._any else self._first.get((queue.project, queue.group), queue.band))

    def put_off(self, queue: Queue) -> bool:
        """Whether it must wait; `at_hand` is told of it when it needn't any more."""
        waits = self.must_wait(queue)
        if waits:
            self._waiting[queue] = None
        return waits

    def _wait_for_it(self) -> None:
        self._patience = asyncio.get_running_loop().call_later(_PATIENCE_S, self._came_in)

    def _came_in(self) -> None:
        self._lose_patience()
        self._any, self._first = False, {}
        waiting, self._waiting = self._waiting, {}
        for queue in _by_band(waiting):
            self._at_hand(queue)

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def catch_up(self) -> None:
        """Have the backlog fed, if there is one that waits for it. Whoever takes over more at the same time lets all of
        them be open first: a catch-up takes most of what the event loop has.
        """
        self._catch_up()
        self._catch_up = _nothing

    async def begin_anew(self) -> None:
        """The stream is another one. Raises Lost, Refused."""
        await self.begin(await self._store.state(self._lane.id))
        self.catch_up()

    async def drop(self) -> None:
        """Close the feeds, as others are to be made or none."""
        self._lose_patience()
        feeds, self.feeds = self.feeds, []
        await asyncio.gather(*(feed.close() for feed in feeds))

    # A feed breaks, too, when its stream is deleted: nothing is settled or purged until that is ruled out.

    async def _resume(self, _last: int) -> int:
        self._lane.verified = -1
        await self._verify(self._lane)
        return self._lane.position + 1

    async def _resume_tail(self, _last: int) -> int:
        self._lane.verified = -1
        await self._verify(self._lane)
        return self._lane.fed_to + 1
