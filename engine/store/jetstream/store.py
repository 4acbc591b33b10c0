"""The store port on JetStream: one stream per lane and per delay stream, and one each for dead letters, the settle log,
in-flight records and metering records.

The store holds the parts together: its connections, the streams that it prepares, and their upkeep. Publishing, feeds,
reads, deletion and retention are modules of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.callbacks import call_all
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import LaneState, Lost, Refused
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.store.feed_callbacks import FeedCallbacks
from evenlane.engine.store.jetstream import deletion, durability, retention, streams
from evenlane.engine.store.jetstream.advisories import StreamAdvisories
from evenlane.engine.store.jetstream.api.responses import await_call
from evenlane.engine.store.jetstream.api.server_clock import ServerClock
from evenlane.engine.store.jetstream.api.values import StreamInfo
from evenlane.engine.store.jetstream.backlog_throttle import BacklogThrottle
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.replies import ApiError
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.feed import FeedSource, JetStreamFeed
from evenlane.engine.store.jetstream.publishing.publisher import Publisher
from evenlane.engine.store.jetstream.reads import Reads
from evenlane.engine.store.jetstream.stream_configs import StreamConfigs, probe_config
from evenlane.engine.store.jetstream.watchdog import Watchdog
from evenlane.engine.store.jetstream.writability import Writability
from evenlane.engine.store.refusals import missing_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import (
        BusyRecord,
        Head,
        Stored,
        StreamSize,
        SubjectBacklogs,
        SubjectCounts,
        Unwritable,
    )
    from evenlane.engine.store.jetstream.client.options import NatsOptions

_OVERHEAD = 1024  # bytes per delivery in addition to headers and body: its subject and its reply subject
_CLOCK_EVERY_S = 60
_SECOND = 1_000_000_000


class JetStreamStore:
    """The store of one cluster, on one or two connections. `storage` is file or memory (promise L holds for file only);
    `replicas` is 3 in production. With `feeds_apart`, feeds have a connection of their own; a process that only puts
    needs none.
    """

    def __init__(
        self,
        options: NatsOptions,
        cluster: str,
        *,
        name: str = "evenlane",
        storage: str = "file",
        replicas: int = 1,
        duplicate_window_s: float = 30.0,
        dead_letter_keep_s: float = 30 * 86_400.0,
        meter_keep_s: float = 7 * 86_400.0,
        feed_budget: int = 32 << 20,
        feeds_apart: bool = True,
    ) -> None:
        self._options, self._cluster, self._feed_budget = options, cluster, feed_budget
        self._configs = StreamConfigs(cluster, storage, replicas, duplicate_window_s, dead_letter_keep_s, meter_keep_s)
        self._replicas_of: dict[str, int] = {}  # by stream, when it was last prepared
        self._kept_compared = False
        self._connection = Connection(options, name)
        # Acknowledgements must not queue behind the megabytes that feeds have requested: on one connection,
        # settling lagged by more than a second at full load (docs/adr/0004).
        self._feeding = Connection(options, f"{name} feeds") if feeds_apart else self._connection
        self._feeds: set[JetStreamFeed] = set()
        self._budget = FeedBudget(feed_budget, 1 << 20)
        self._backlogs: BacklogThrottle | None = None  # None until it is open
        self._upkeep: list[asyncio.Task[None]] = []
        self._clusters: frozenset[str] = frozenset()  # that had settle logs when this was last looked up
        self._is_prepared = False  # otherwise this process only puts, and may not look at streams
        self._clock = ServerClock()
        self._reads = Reads(self._connection, cluster, self._restore)
        self._advisories = StreamAdvisories(self._reads, self._feeds)
        log = names.settled_stream(cluster)
        self._writability = Writability(self._connection, lambda: not self._reads.has_no_replicas(log), urgent=log)
        self._publisher = Publisher(self._connection, cluster, self._writability.note)
        # These methods of the port are the publisher's own, because methods that forward would cost a call per message.
        self.put, self.put_then = self._publisher.put, self._publisher.put_then
        self.append_log = self._publisher.append_log
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []

    @property
    def incarnation(self) -> int:
        return self._connection.incarnation + self._feeding.incarnation + self._advisories.elections

    @property
    def max_payload(self) -> int:
        return self._connection.max_payload

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected and self._feeding.is_connected

    def now(self) -> int:
        """The store's clock, unix ns."""
        return self._clock.offset + now_ns()

    async def open(self) -> None:
        """Raises Unreachable, or EvenlaneError if the server refuses."""
        await self._connection.open()
        if self._feeding is not self._connection:
            try:
                await self._feeding.open()
            except EvenlaneError:
                await self._connection.close()  # so that `open` can be called again
                raise
            self._feeding.on_lost.append(self._disturb)
        self._budget = FeedBudget(self._feed_budget, self.max_payload + _OVERHEAD)
        self._backlogs = BacklogThrottle(self._budget, asyncio.get_running_loop())
        self._connection.on_lost += [self._disturb, partial(call_all, self.on_lost)]
        self._connection.on_back.append(partial(call_all, self.on_back))
        self._publisher.open()
        self._advisories.follow(self._connection)
        watchdog = Watchdog(self._connection, self._publisher, self._feeds, lambda: self.is_connected)
        self._upkeep = [
            asyncio.create_task(watchdog.run(), name="store watchdog"),
            asyncio.create_task(self._keep_up(), name="store upkeep"),
        ]

    async def close(self) -> None:
        if self._backlogs is not None:
            self._backlogs.close()
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*(feed.close() for feed in list(self._feeds)))
        await self._connection.close()
        if self._feeding is not self._connection:
            await self._feeding.close()

    async def prepare(self, lanes: Sequence[LaneId], queue_limit: int | None = None) -> None:
        if queue_limit is not None:
            self._publisher.queue_limit = queue_limit
        self._is_prepared = True
        shared = self._configs.list_shared(lanes, self._publisher.queue_limit)
        if names.subscription_of(self._cluster):
            await self._ensure(shared, self._configs.list_own())
        else:
            await self._ensure([*shared, *self._configs.list_own()])
        self._note_log(await self._clock.begin(self._connection, names.settled_stream(self._cluster)))
        if self._feeding is not self._connection and not self._kept_compared:  # a process that only puts needn't check
            self._kept_compared = True
            retention.compare(self._cluster, await self.dead_letters_kept(), self._configs.keep_s)

    async def _ensure(self, desired: list[dict[str, Any]], required: Sequence[dict[str, Any]] = ()) -> None:
        missing = partial(missing_stream, self._cluster)
        try:
            ensured = await await_call(streams.ensure(self._connection, desired, required, missing))
        except Refused as error:
            raise ConfigError(f"NATS can't hold the streams: {error}") from error
        self._replicas_of |= ensured.replicas
        self._clusters = names.find_clusters(names.env_of(self._cluster), ensured.found)

    async def create_own_streams(self) -> None:
        assert names.subscription_of(self._cluster), "the streams of the unnamed subscription are created by `prepare`"
        listing = await await_call(streams.list_streams(self._connection))
        await self._ensure(self._configs.adapt(listing.configs).list_own())

    async def find_clusters(self, *, again: bool = False) -> frozenset[str]:
        if again:
            listing = await await_call(streams.list_streams(self._connection))
            self._clusters = names.find_clusters(names.env_of(self._cluster), listing.names)
        return self._clusters

    async def find_missing_streams(self) -> list[str]:
        listing = await await_call(streams.list_streams(self._connection))
        return [name for name in names.own_streams(self._cluster) if name not in listing.names]

    async def has_room(self, size: int) -> bool:
        config = probe_config(names.env_of(self._cluster), self._configs.storage, self._configs.replicas, size)
        return await await_call(streams.can_create(self._connection, config))

    async def delete_own_streams(self) -> None:
        for stream in names.own_streams(self._cluster):
            await await_call(streams.remove(self._connection, stream))

    async def _restore(self, lanes: Sequence[LaneId]) -> None:
        """Create streams that were deleted at runtime. A failure is reported as Lost, so that the caller retries."""
        try:
            await self.prepare(lanes)
        except ConfigError as error:
            raise Lost(str(error)) from error

    # ---- feeds

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
    ) -> JetStreamFeed:
        stream = names.stream(self._cluster, lane)

        async def leader() -> str | None:
            """The server whose consumers lag behind nothing; None if the stream is on one server only."""
            if self._reads.has_no_replicas(stream):
                return None
            info = await self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}")
            self._reads.note_replicas(stream, info.replicas)
            return info.leader if info.replicas > 1 else None

        subjects = self._subjects_of(lane, hours)
        source = FeedSource(stream, subjects, leader)
        callbacks = FeedCallbacks(sink, on_break, on_end, on_head)
        feed = JetStreamFeed(self._feeding, self._budget, source, callbacks, start=start, until=until)
        if self._backlogs is not None:
            self._backlogs.on_created()
        self._feeds.add(feed)
        feed.task.add_done_callback(lambda _: self._feeds.discard(feed))
        return feed

    def _subjects_of(self, lane: LaneId, hours: Sequence[int | str] | None) -> list[str]:
        """The subjects of a lane's feed; none stands for all that its stream has."""
        if hours:
            return [f"{names.lane_prefix(self._cluster, lane)}*.*.*.{hour}" for hour in hours]
        return [f"{names.lane_prefix(self._cluster, lane)}>"] if lane.kind == "again" else []

    def expect_feeds(self, *, more: bool) -> None:
        if self._backlogs is not None:
            self._backlogs.expect(more=more)

    # ---- reads

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        return await self._reads.get(lane, sequences)

    async def find_since(self, lane: LaneId, at: int) -> int:
        return await self._reads.find_since(lane, at)

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        return await self._reads.scan(lane, subject, start, limit)

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Stored]:
        return await self._reads.next_of(lane, subject, start, limit)

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        return await self._reads.count(lane, subject, start)

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        return await self._reads.heads(lane, subject, start, limit)

    async def counts(self, lane: LaneId) -> dict[str, int]:
        # (the stream of retries has messages of other partitions, too)
        mine = f"{names.lane_prefix(self._cluster, lane)}>" if lane.kind == "again" else ">"
        return (await self._reads.subjects(names.stream(self._cluster, lane), mine)).counts

    async def backlog_after(self, lane: LaneId, position: int) -> SubjectBacklogs:
        return await self._reads.backlog_after(lane, position)

    async def count_by_subject(self, lane: LaneId, project: str, cluster: str | None = None) -> SubjectCounts:
        return await self._reads.count_by_subject(lane, project, cluster or self._cluster)

    async def busy(self) -> list[BusyRecord]:
        return await self._reads.busy()

    async def read_log(self, lane: LaneId) -> tuple[list[Stored], int]:
        return await self._reads.log(lane)

    async def read_last_record(self, lane: LaneId, cluster: str) -> bytes | None:
        return await self._reads.last_record(lane, cluster)

    async def read_records(self, lane: LaneId, cluster: str) -> list[bytes]:
        return await self._reads.records(lane, cluster)

    # ---- lanes

    async def state(self, lane: LaneId) -> LaneState:
        """The state of a lane's stream. A stream that doesn't exist (any more) is created."""
        stream = names.stream(self._cluster, lane)
        try:
            info = await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        except Refused as error:
            if not isinstance(error.__cause__, ApiError) or error.__cause__.code != 404:
                raise Lost(str(error)) from error
            await self._restore([lane])
            info = await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        self._reads.note_replicas(stream, info.replicas)
        return LaneState(info.created, info.state.first_seq, info.state.last_seq, info.state.at)

    async def size(self, lane: LaneId) -> StreamSize:
        return await self._reads.size(lane)

    async def purge(self, lane: LaneId, below: int, may: Callable[[], bool] = lambda: True) -> None:
        await deletion.purge(self._connection, self._reads, names.stream(self._cluster, lane), below, may)

    async def delete(self, lane: LaneId, sequence: int) -> None:
        await deletion.delete(self._connection, names.stream(self._cluster, lane), sequence)

    async def unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        return await self._writability.find_unwritable(streams)

    async def find_risks(self) -> list[str]:
        storage = durability.Storage(
            self._configs.storage, self._replicas_of, self._configs.replicas, durability.is_local(self._options.servers)
        )
        found = await durability.read_sync(self._options.monitor, self._options.tls())
        return durability.find_risks(storage, found)

    async def dead_letters_kept(self) -> float:
        return await await_call(retention.read_retention(self._connection, self._cluster))

    async def keep_dead_letters(self, seconds: float) -> None:
        await await_call(retention.keep(self._connection, self._cluster, seconds))

    # ---- upkeep

    def _disturb(self) -> None:
        for feed in self._feeds:
            feed.disturb("the connection to NATS was lost")

    def _note_log(self, info: StreamInfo | None) -> None:
        """Note the settle log's replicas each time the clock is read."""
        if info is not None:
            self._reads.note_replicas(info.name, info.replicas, 2 * _CLOCK_EVERY_S * _SECOND)

    async def _keep_up(self) -> None:
        seconds = 0
        while True:
            await asyncio.sleep(1)
            if not self._is_prepared or not self.is_connected:
                continue
            if self._publisher.found_no_stream:
                self._publisher.found_no_stream = False
                with contextlib.suppress(Lost, Refused, ConfigError):
                    await self.prepare([])
            seconds += 1
            if seconds % _CLOCK_EVERY_S == 0:
                with contextlib.suppress(Lost, Refused):
                    self._note_log(await self._clock.read(self._connection, names.settled_stream(self._cluster)))
