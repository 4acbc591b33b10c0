"""The store port in memory: one connection to a `MemoryServer`."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from evenlane.engine.base import names
from evenlane.engine.base.callbacks import call_all
from evenlane.engine.core.ports import (
    BusyRecord,
    Head,
    LogMoved,
    Lost,
    Refused,
    StreamSize,
    SubjectBacklogs,
    SubjectCounts,
)
from evenlane.engine.errors import Unreachable
from evenlane.engine.store.feed_callbacks import FeedCallbacks
from evenlane.engine.store.memory.feed import MemoryFeed
from evenlane.engine.store.memory.pending_answers import PendingAnswers
from evenlane.engine.store.memory.server import Unanswered
from evenlane.engine.store.refusals import check_retention, missing_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import LaneState, Receipt, Stored, Unwritable
    from evenlane.engine.store.memory.server import MemoryServer
    from evenlane.engine.store.memory.stream import MemoryStream

T = TypeVar("T")

_SECOND = 1_000_000_000


class MemoryStore:
    """A connection. `clock` is what `now` returns, the server's own by default: a node's estimate may be wrong.

    Invariant: `_feeds` has the feeds that run, each with its lane.
    """

    _feed_type = MemoryFeed

    def __init__(self, server: MemoryServer, cluster: str, *, clock: Callable[[], int] | None = None) -> None:
        self.server, self._cluster = server, cluster
        self._clock = clock or server.clock
        self.incarnation = 0
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []
        self.up = asyncio.Event()
        self.answers = PendingAnswers()
        self._feeds: dict[MemoryFeed, LaneId] = {}

    @property
    def is_connected(self) -> bool:
        return self.up.is_set()

    @property
    def max_payload(self) -> int:
        return self.server.max_payload

    def now(self) -> int:
        """The store's clock, unix ns."""
        return self._clock()

    async def find_risks(self) -> list[str]:
        """None: nobody expects a store in memory to outlive its process."""
        return []

    async def open(self) -> None:
        """Raises Unreachable."""
        if not self.server.up:
            raise Unreachable("the memory server does not answer")
        self.server.stores.append(self)
        self.up.set()

    async def close(self) -> None:
        self.on_lost.clear()
        self.on_back.clear()
        if self in self.server.stores:
            self.server.stores.remove(self)
        await asyncio.gather(*(feed.close() for feed in list(self._feeds)))
        self.cut()

    async def prepare(self, lanes: Sequence[LaneId], queue_limit: int | None = None) -> None:
        missing = await self._read(lambda: self.server.prepare(self._cluster, lanes, queue_limit))
        if missing is not None:
            raise missing_stream(self._cluster, missing)

    async def create_own_streams(self) -> None:
        assert names.subscription_of(self._cluster), "the streams of the unnamed subscription are created by `prepare`"
        await self._read(lambda: self.server.create(*names.own_streams(self._cluster)))

    async def find_clusters(self, *, again: bool = False) -> frozenset[str]:
        del again  # it costs nothing
        return await self._read(lambda: names.find_clusters(names.env_of(self._cluster), self.server.list_streams()))

    async def find_missing_streams(self) -> list[str]:
        own = names.own_streams(self._cluster)
        return await self._read(lambda: [name for name in own if self.server.find(name) is None])

    async def has_room(self, size: int) -> bool:
        del size
        return True

    async def delete_own_streams(self) -> None:
        await self._read(lambda: self.server.delete(*names.own_streams(self._cluster)))

    # ---- messages

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        return self._ask(lambda: self.server.store(subject, headers, body), self.server.ack_delay_s)

    def put_then(
        self, subject: str, headers: bytes, body: bytes, answered: Callable[[Receipt | Exception], None]
    ) -> None:
        if not self.is_connected:
            raise Lost("there is no connection at the moment")
        asked = self.put(subject, headers, body)
        asked.add_done_callback(lambda _: answered(_outcome(asked)))

    def expect_feeds(self, *, more: bool) -> None:
        """Nothing to do: memory is fast."""

    def feed(
        self,
        lane: LaneId,
        start: int,
        sink: Callable[[bytes, int, int, bytes, bytes], None],
        on_break: Callable[[int], Awaitable[int]],
        *,
        until: int | None = None,
        hours: Sequence[int | str] | None = None,
        on_end: Callable[[], None] | None = None,
        on_head: Callable[[bytes, int, int, bytes, int], bool] | None = None,
    ) -> MemoryFeed:
        callbacks = FeedCallbacks(sink, on_break, on_end, on_head)
        stream = names.stream(self._cluster, lane)
        prefix = self._prefix_of(lane)
        feed = self._feed_type(self, stream, callbacks, start=start, until=until, hours=hours, prefix=prefix)
        self._feeds[feed] = lane
        feed.task.add_done_callback(lambda _: self._feeds.pop(feed, None))
        return feed

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        return await self._read(lambda: [self.lane(lane).messages.get(sequence) for sequence in sequences])

    async def find_since(self, lane: LaneId, at: int) -> int:
        def read() -> int:
            stream = self.lane(lane)
            later = (sequence for sequence, each in stream.messages.items() if each.at >= at)
            return next(later, stream.last + 1)

        return await self._read(read)

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        return await self._read(lambda: self.lane(lane).sequences(subject, start)[:limit])

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Stored]:
        def read() -> list[Stored]:
            stream = self.lane(lane)
            return [stream.messages[sequence] for sequence in stream.sequences(subject, start)[:limit]]

        return await self._read(read)

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        return await self._read(lambda: len(self.lane(lane).sequences(subject, start)))

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        found = await self.next_of(lane, subject, start, limit)
        return [Head(each.sequence, each.at, len(each.body), each.headers) for each in found]

    async def busy(self) -> list[BusyRecord]:
        def read() -> list[BusyRecord]:
            stream = self.server.stream(names.stream(self._cluster, names.BUSY))
            found = [stream.messages[sequence] for sequence in stream.last_of.values()]
            return [BusyRecord(each.at, each.body) for each in found]

        return await self._read(read)

    # ---- lanes

    def lane(self, lane: LaneId) -> MemoryStream:
        return self.server.stream(names.stream(self._cluster, lane))

    def _prefix_of(self, lane: LaneId) -> str:
        """What the lane's subjects begin with, if its stream has messages of other partitions, too."""
        return names.lane_prefix(self._cluster, lane) if lane.kind == "again" else ""

    async def state(self, lane: LaneId) -> LaneState:
        """The state of a lane's stream. A stream that doesn't exist (any more) is created."""

        def read() -> LaneState:
            missing = self.server.prepare(self._cluster, [lane])
            if missing is not None:
                raise Lost(str(missing_stream(self._cluster, missing)))
            return self.lane(lane).state()

        return await self._read(read)

    async def size(self, lane: LaneId) -> StreamSize:
        def read() -> StreamSize:
            stream = self.lane(lane)
            sizes = [len(each.headers) + len(each.body) for each in stream.messages.values()]
            return StreamSize(stream.state().first, len(sizes), sum(sizes))

        return await self._read(read)

    async def counts(self, lane: LaneId) -> dict[str, int]:
        return await self._read(lambda: self.lane(lane).counts(self._prefix_of(lane)))

    async def backlog_after(self, lane: LaneId, position: int) -> SubjectBacklogs:
        def read() -> SubjectBacklogs:
            stream = self.lane(lane)
            counts = stream.counts(self._prefix_of(lane))
            ends = {subject: stream.sequences(subject)[-1] for subject in counts}
            return SubjectBacklogs(
                {subject: count for subject, count in counts.items() if ends[subject] > position},
                {subject: end for subject, end in ends.items() if end > position},
            )

        return await self._read(read)

    async def count_by_subject(self, lane: LaneId, project: str, cluster: str | None = None) -> SubjectCounts:
        of = cluster or self._cluster
        place = 2 if lane.kind == "dead" else 3

        def read() -> SubjectCounts:
            try:
                stream = self.server.stream(names.stream(of, lane))
            except Lost:
                return SubjectCounts({}, 0)
            every = stream.counts("" if lane.kind == "dead" else names.lane_prefix(of, lane)).items()
            counts = {subject: n for subject, n in every if project in ("*", subject.split(".")[place])}
            return SubjectCounts(counts, stream.state().last)

        return await self._read(read)

    async def purge(self, lane: LaneId, below: int, may: Callable[[], bool] = lambda: True) -> None:
        if not may():
            raise Lost("the lane isn't purged: the lease isn't trusted any more")
        await self._read(lambda: self._removable(lane).purge(below))

    async def delete(self, lane: LaneId, sequence: int) -> None:
        await self._read(lambda: self._removable(lane).messages.pop(sequence, None))

    def _removable(self, lane: LaneId) -> MemoryStream:
        return self.server.removable(names.stream(self._cluster, lane))

    async def unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        return await self._read(lambda: self.server.unwritable(streams))

    async def dead_letters_kept(self) -> float:
        return await self._read(lambda: self._dead_letters().max_age / _SECOND)

    async def keep_dead_letters(self, seconds: float) -> None:
        def change() -> None:
            dead_letters = self._dead_letters()
            dead_letters.max_age = check_retention(dead_letters.name, seconds, dead_letters.window)

        await self._read(change)

    def _dead_letters(self) -> MemoryStream:
        try:
            return self.lane(names.DEAD)
        except Lost as error:
            raise Refused(str(error)) from error

    # ---- the settle log

    async def read_log(self, lane: LaneId) -> tuple[list[Stored], int]:
        subject = names.settled_subject(self._cluster, lane)

        def read() -> tuple[list[Stored], int]:
            stream = self.server.stream(names.settled_stream(self._cluster))
            sequences = stream.sequences(subject)
            return [stream.messages[s] for s in sequences], sequences[-1] if sequences else 0

        return await self._read(read)

    async def read_last_record(self, lane: LaneId, cluster: str) -> bytes | None:
        subject = names.settled_subject(cluster, lane)

        def read() -> bytes | None:
            stream = self.server.find(names.settled_stream(cluster))
            last = stream.last_of.get(subject) if stream is not None else None
            return stream.messages[last].body if stream is not None and last is not None else None

        return await self._read(read)

    async def read_records(self, lane: LaneId, cluster: str) -> list[bytes]:
        subject = names.settled_subject(cluster, lane)

        def read() -> list[bytes]:
            stream = self.server.find(names.settled_stream(cluster))
            return [] if stream is None else [stream.messages[each].body for each in stream.sequences(subject)]

        return await self._read(read)

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        subject = names.settled_subject(self._cluster, lane)
        return self._ask(lambda: self.server.append_log(subject, record, after, checkpoint), self.server.ack_delay_s)

    # ---- the connection under the server's faults

    def cut(self) -> None:
        """Lose the connection: pending requests may have been carried out, but get no answer."""
        if not self.is_connected:
            return
        self.incarnation += 1
        self.up.clear()
        self.answers.lose()
        for feed in list(self._feeds):
            feed.disturb("the connection was lost")
        call_all(self.on_lost)

    def join(self) -> None:
        """Restore the connection."""
        if self.is_connected:
            return
        self.incarnation += 1
        self.up.set()
        call_all(self.on_back)

    def elected(self) -> None:
        """The stream has another leader."""
        self.incarnation += 1

    def disturb(self, stream: str, why: str) -> None:
        """Break this stream's feeds."""
        for feed, lane in list(self._feeds.items()):
            if names.stream(self._cluster, lane) == stream:
                feed.disturb(why)

    def release(self) -> None:
        """Give the answers that were withheld, unless the server withholds all."""
        if not math.isinf(self.server.ack_delay_s):
            self.answers.release()

    # ---- internals

    async def _read(self, carry_out: Callable[[], T]) -> T:
        return await self._ask(carry_out, 0)

    def _ask(self, carry_out: Callable[[], T], delay_s: float) -> asyncio.Future[T]:
        """Carry out a request now, so that all requests take effect in order, and answer later. If the stream can't be
        written, the answer comes only when the connection is lost.
        """
        future: asyncio.Future[T] = self.answers.begin()
        if not self.is_connected:
            self.answers.refuse(future, Lost("there is no connection at the moment"))
            return future
        try:
            result = carry_out()
        except (Refused, Lost, LogMoved) as error:
            self.answers.schedule(partial(self.answers.refuse, future, error), delay_s)
        except Unanswered:
            pass
        else:
            self.answers.schedule(partial(self.answers.confirm, future, result), delay_s)
        return future


def _outcome(asked: asyncio.Future[Receipt]) -> Receipt | Exception:
    try:
        return asked.result()
    except (Refused, Lost) as error:
        return error
