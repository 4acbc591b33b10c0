"""The store port on JetStream: one stream a lane, one for dead letters, one for the settle log."""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64decode
from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from engine import headers as h
from engine import names
from engine.clock import now_ns
from engine.errors import ConfigError, Unreachable
from engine.ports import (
    BusyRecord,
    Held,
    LaneState,
    LogMoved,
    Lost,
    QueueFull,
    Receipt,
    Refused,
    Stored,
    TooLarge,
)
from engine.stores.jetstream import retention, streams
from engine.stores.jetstream.answers import (
    NO_STREAM,
    NOBODY,
    NOT_FOUND,
    PubAck,
    asked,
    checked,
    parse_time,
    receipt,
    stored,
    was_gone,
)
from engine.stores.jetstream.budget import FeedBudget
from engine.stores.jetstream.connection import ApiError, Connection, Disconnected, NatsOptions, Reply
from engine.stores.jetstream.feed import JetStreamFeed, Scan, head_of, sequence_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from engine.names import LaneId
    from engine.ports import Head

_OVERHEAD = 1024  # bytes of a delivery beside headers and body: its subject and its reply subject
_READS_AT_ONCE = 256
_READINGS = 4  # of the server's clock, one a minute
_ANSWER_S = 6  # an acknowledgement that takes longer won't come: its server or its leader has changed

T = TypeVar("T")


class JetStreamStore:
    """`storage` is file or memory (promise L holds for file alone); `replicas` is 3 in production. With
    `feeds_apart` feeds have a connection of their own; who only puts needs none.
    """

    def __init__(
        self,
        options: NatsOptions,
        env: str,
        *,
        name: str = "evenlane",
        storage: str = "file",
        replicas: int = 1,
        duplicate_window_s: float = 30.0,
        dead_letter_keep_s: float = 30 * 86_400.0,
        feed_budget: int = 32 << 20,
        feeds_apart: bool = True,
    ) -> None:
        self._env, self._storage, self._replicas = env, storage, replicas
        self._window_s, self._feed_budget = duplicate_window_s, feed_budget
        self._keep_s, self._kept_compared = dead_letter_keep_s, False
        self._queue_limit: int | None = None
        self._connection = Connection(options, name)
        # Acknowledgements must not queue behind the megabytes that feeds have asked for: on one connection
        # settling lagged by more than a second at full load (docs/adr/0004).
        self._feeding = Connection(options, f"{name} feeds") if feeds_apart else self._connection
        self._feeds: set[JetStreamFeed] = set()
        self._budget = FeedBudget(feed_budget, 1 << 20)
        self._watchdog: asyncio.Task[None] | None = None
        self._elections = 0
        self._homeless = False  # a publish found no stream: the dead letters' or the settle log's may be deleted
        self._offset = 0  # server's unix ns minus our monotonic ns
        self._readings: deque[int] = deque(maxlen=_READINGS)
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []

    @property
    def incarnation(self) -> int:
        return self._connection.incarnation + self._feeding.incarnation + self._elections

    @property
    def max_payload(self) -> int:
        return self._connection.max_payload

    @property
    def connected(self) -> bool:
        return self._connection.connected and self._feeding.connected

    def now(self) -> int:
        """The store's clock, unix ns."""
        return self._offset + now_ns()

    async def open(self) -> None:
        """Raises Unreachable."""
        await self._connection.open()
        if self._feeding is not self._connection:
            try:
                await self._feeding.open()
            except Unreachable:
                await self._connection.close()  # so that all of it can be tried again
                raise
            self._feeding.on_lost.append(self._disturb)
        self._budget = FeedBudget(self._feed_budget, self.max_payload + _OVERHEAD)
        self._connection.on_lost += [self._disturb, lambda: _call(self.on_lost)]
        self._connection.on_back.append(lambda: _call(self.on_back))
        self._connection.listen("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*", self._on_election)
        self._watchdog = asyncio.create_task(self._watch_feeds(), name="feed watchdog")

    async def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        await asyncio.gather(*(feed.close() for feed in list(self._feeds)))
        await self._connection.close()
        if self._feeding is not self._connection:
            await self._feeding.close()

    async def prepare(self, lanes: Sequence[LaneId], queue_limit: int | None = None) -> None:
        self._queue_limit = self._queue_limit if queue_limit is None else queue_limit
        wanted = [
            streams.lane_config(self._env, lane, self._storage, self._replicas, self._window_s, self._queue_limit)
            for lane in lanes
            if lane != names.DEAD
        ]
        wanted.append(streams.dead_config(self._env, self._storage, self._replicas, self._window_s, self._keep_s))
        wanted.append(streams.settled_config(self._env, self._storage, self._replicas))
        wanted.append(streams.busy_config(self._env, self._storage, self._replicas))
        try:
            await asked(streams.ensure(self._connection, wanted))
        except Refused as error:
            raise ConfigError(f"NATS can't hold the streams: {error}") from error
        for _ in range(_READINGS - len(self._readings)):
            await self._read_clock()
        if self._feeding is not self._connection and not self._kept_compared:  # who only puts needn't care
            self._kept_compared = True
            retention.compare(self._env, await self.dead_letters_kept(), self._keep_s)

    async def _restore(self, lanes: Sequence[LaneId]) -> None:
        """Make what was deleted underneath; what can't be had now is a matter for later, not for an end."""
        try:
            await self.prepare(lanes)
        except ConfigError as error:
            raise Lost(str(error)) from error

    # ---- messages

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._publish(subject, headers, body, stored, receipt)
        return stored

    def put_then(
        self, subject: str, headers: bytes, body: bytes, answered: Callable[[Receipt | Exception], None]
    ) -> None:
        if error := self._above_limit(len(headers) + len(body)):
            asyncio.get_running_loop().call_soon(answered, error)
            return
        try:
            self._connection.ask_then(subject, body, headers, partial(self._tell, answered))
        except Disconnected as error:
            raise Lost(str(error)) from error

    def _tell(self, answered: Callable[[Receipt | Exception], None], reply: Reply | Disconnected) -> None:
        try:
            outcome: Receipt | Exception = receipt(self._acknowledged(reply))
        except (Refused, Lost, LogMoved) as error:
            outcome = error
        answered(outcome)

    def _publish(
        self,
        subject: str,
        headers: bytes,
        body: bytes,
        result: asyncio.Future[T],
        read: Callable[[PubAck], T],
    ) -> None:
        if error := self._above_limit(len(headers) + len(body)):
            result.set_exception(error)
            return
        try:
            self._connection.ask_then(subject, body, headers, partial(self._settle, result, read))
        except Disconnected as error:
            result.set_exception(Lost(str(error)))

    def _above_limit(self, size: int) -> TooLarge | None:
        """The server would cut the connection."""
        limit = self.max_payload
        return TooLarge(f"{size} bytes are more than the server's {limit}") if size > limit else None

    def _settle(self, result: asyncio.Future[T], read: Callable[[PubAck], T], reply: Reply | Disconnected) -> None:
        """Settle a publish by its answer."""
        if result.done():
            return
        try:
            result.set_result(read(self._acknowledged(reply)))
        except (Refused, Lost, LogMoved) as error:
            result.set_exception(error)

    def _acknowledged(self, reply: Reply | Disconnected) -> PubAck:
        """The answer to a publish; raises what it says is wrong."""
        if isinstance(reply, Disconnected):
            raise Lost(str(reply))
        if reply.headers and reply.headers.startswith(NOBODY):
            self._homeless = True
        try:
            return checked(reply)
        except QueueFull:
            raise QueueFull(max(0, self._queue_limit or 0)) from None
        except msgspec.MsgspecError:
            raise Lost("an answer came that is none of JetStream's") from None

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
    ) -> JetStreamFeed:
        stream = names.stream(self._env, lane)

        async def leader() -> str | None:
            info = await self._connection.api(f"STREAM.INFO.{stream}")
            found = info.get("cluster", {}).get("leader")
            return str(found) if found else None

        feed = JetStreamFeed(
            self._feeding, stream, start, sink, on_break, self._budget, until=until, on_end=on_end,
            subjects=[f"later.{self._env}.{lane.partition}.*.*.*.{hour}" for hour in hours or ()],
            leader_of=leader if self._replicas > 1 else None,
        )  # fmt: skip
        self._feeds.add(feed)
        feed._task.add_done_callback(lambda _: self._feeds.discard(feed))  # noqa: SLF001
        return feed

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        subject = f"$JS.API.DIRECT.GET.{names.stream(self._env, lane)}"
        found: list[Stored | None] = []
        for start in range(0, len(sequences), _READS_AT_ONCE):
            part = sequences[start : start + _READS_AT_ONCE]
            replies = await self._gather(subject, [b'{"seq":%d}' % sequence for sequence in part])
            for sequence, reply in zip(part, replies, strict=True):
                found.append(
                    stored(reply) if reply.headers[9:12] == b"" or reply.headers[8:10] == b"\r\n"
                    else await self._get_from_leader(lane, sequence)
                )  # fmt: skip
        return found

    async def _gather(self, subject: str, requests: list[bytes]) -> list[Reply]:
        try:
            replies = [self._connection.ask(subject, request) for request in requests]
            async with asyncio.timeout(10):
                return await asyncio.gather(*replies)
        except (Disconnected, TimeoutError) as error:
            raise Lost(f"reading from {subject} was cut off") from error

    async def _get_from_leader(self, lane: LaneId, sequence: int) -> Stored | None:
        """A replica that lags says 404, too: only the leader's word counts (E12)."""
        answer = await self._message(names.stream(self._env, lane), {"seq": sequence})
        if answer is None:
            return None
        headers = b64decode(answer["hdrs"]) if "hdrs" in answer else b""
        return Stored(
            sequence,
            parse_time(answer["time"]),
            answer["subject"],
            headers,
            b64decode(answer.get("data", "")),
        )

    async def _message(self, stream: str, which: dict[str, Any]) -> dict[str, Any] | None:
        try:
            answer = await asked(self._connection.api(f"STREAM.MSG.GET.{stream}", which))
        except Refused as error:
            code = error.__cause__.err_code if isinstance(error.__cause__, ApiError) else 0
            if code in NOT_FOUND:
                return None
            if code == NO_STREAM and stream == names.settled_stream(self._env):
                await self._restore([])  # deleted underneath: its owner writes down again what it knows
                return None
            raise Lost(str(error)) from error
        found: dict[str, Any] = answer["message"]
        return found

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        return await Scan(self._connection, names.stream(self._env, lane), subject, start, limit, sequence_of).run()

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        return await Scan(self._connection, names.stream(self._env, lane), subject, start, 0, sequence_of).count()

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        return await Scan(self._connection, names.stream(self._env, lane), subject, start, limit, head_of).run()

    async def busy(self) -> list[BusyRecord]:
        stream = names.busy_stream(self._env)
        try:
            subjects = (await self._held(names.BUSY, names.busy_subject(self._env, "*"))).counts
        except Refused as error:  # deleted underneath
            await self._restore([])
            raise Lost(str(error)) from error
        records: list[BusyRecord] = []
        each_of = list(subjects)
        for start in range(0, len(each_of), _READS_AT_ONCE):
            some = each_of[start : start + _READS_AT_ONCE]
            found = await asyncio.gather(*(self._message(stream, {"last_by_subj": subject}) for subject in some))
            there = (each for each in found if each is not None)
            records += [BusyRecord(parse_time(each["time"]), b64decode(each.get("data", ""))) for each in there]
        return records

    # ---- lanes

    async def state(self, lane: LaneId) -> LaneState:
        """A stream that isn't there (any more) is made: its state is that of a new one."""
        stream = names.stream(self._env, lane)
        try:
            info = await asked(self._connection.api(f"STREAM.INFO.{stream}"))
        except Refused as error:
            if not isinstance(error.__cause__, ApiError) or error.__cause__.code != 404:
                raise Lost(str(error)) from error
            await self._restore([lane])
            info = await asked(self._connection.api(f"STREAM.INFO.{stream}"))
        state = info["state"]
        at = parse_time(state["last_ts"]) if state["last_seq"] else 0
        return LaneState(info["created"], state["first_seq"], state["last_seq"], max(0, at))

    async def counts(self, lane: LaneId) -> dict[str, int]:
        return (await self._held(lane, ">")).counts

    async def held(self, lane: LaneId, project: str) -> Held:
        try:
            return await self._held(lane, _subjects_of(self._env, lane, project))
        except Refused as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.code == 404:
                return Held({}, 0)
            raise

    async def _held(self, lane: LaneId, subjects: str) -> Held:
        """Page by page; the last sequence is that of the first page."""
        stream = names.stream(self._env, lane)
        counts: dict[str, int] = {}
        last = -1
        while True:
            request = {"subjects_filter": subjects, "offset": len(counts)}
            info = await asked(self._connection.api(f"STREAM.INFO.{stream}", request, timeout=30))
            page: dict[str, int] = info["state"].get("subjects") or {}
            counts |= page
            last = info["state"]["last_seq"] if last < 0 else last
            if not page or len(counts) >= info.get("total", 0):
                return Held(counts, last)

    async def purge(self, lane: LaneId, below: int) -> None:
        if below <= 1:
            return  # the server takes a sequence of 0 for "all"
        stream = names.stream(self._env, lane)
        bound = await self._purge_bound(stream, below)
        await asked(self._connection.api(f"STREAM.PURGE.{stream}", {"seq": bound}, timeout=30))

    async def _purge_bound(self, stream: str, below: int) -> int:
        """The first message from `below` on, or the next to come. A purge up to one that was deleted makes nats-server
        2.15 count wrong, and lose what is left when it counts none (docs/adr/0016).
        """
        # (asked in this order: what is put in between is found by the second, or comes after the first)
        info = await asked(self._connection.api(f"STREAM.INFO.{stream}"))
        found = await self._message(stream, {"seq": below, "next_by_subj": ">"})
        return int(found["seq"]) if found is not None else int(info["state"]["last_seq"]) + 1

    async def delete(self, lane: LaneId, sequence: int) -> None:
        """Without erasing the bytes, which would be 15 times slower."""
        request = {"seq": sequence, "no_erase": True}
        try:
            await asked(self._connection.api(f"STREAM.MSG.DELETE.{names.stream(self._env, lane)}", request, timeout=30))
        except Refused as error:
            if not was_gone(error.__cause__):
                raise

    async def dead_letters_kept(self) -> float:
        return await asked(retention.kept(self._connection, self._env))

    async def keep_dead_letters(self, seconds: float) -> None:
        await asked(retention.keep(self._connection, self._env, seconds))

    # ---- the settle log

    async def read_log(self, lane: LaneId) -> tuple[list[bytes], int]:
        stream, subject = names.settled_stream(self._env), names.settled_subject(self._env, lane)
        last = await self._message(stream, {"last_by_subj": subject})
        if last is None:
            return [], 0
        records = [b64decode(last.get("data", ""))]
        position = int(last["seq"])
        if "Nats-Rollup" not in h.decode(b64decode(last.get("hdrs", ""))):
            sequences = await Scan(self._connection, stream, subject, 1, 1_000_000, sequence_of).run()
            # asked of the leader, all at once: a replica that lags might not have the newest yet
            found = await asyncio.gather(
                *(self._message(stream, {"seq": sequence}) for sequence in sequences if sequence <= position)
            )
            records = [b64decode(each.get("data", "")) for each in found if each is not None]
        return records, position

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        headers = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        if checkpoint:
            headers["Nats-Rollup"] = "sub"
        position: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._publish(names.settled_subject(self._env, lane), h.encode(headers), record, position, lambda ack: ack.seq)
        return position

    # ---- upkeep

    def _disturb(self) -> None:
        for feed in self._feeds:
            feed.disturb("the connection to NATS was lost")

    def _on_election(self, _subject: bytes, _reply: bytes, _headers: bytes, _body: bytes) -> None:
        self._elections += 1

    async def _watch_feeds(self) -> None:
        seconds = 0
        marks = deque([self._connection.asked], _ANSWER_S)
        while True:
            await asyncio.sleep(1)
            if len(marks) == _ANSWER_S:
                self._connection.give_up(marks[0])
            marks.append(self._connection.asked)
            now = monotonic()
            if self.connected:
                for feed in list(self._feeds):
                    feed.check(now)
            if self._homeless and self.connected:
                self._homeless = False
                with contextlib.suppress(Lost, Refused, ConfigError):
                    await self.prepare([])
            seconds += 1
            if seconds % 60 == 0 and self.connected:
                with contextlib.suppress(Lost, Refused):
                    await self._read_clock()

    async def _read_clock(self) -> None:
        """What the server says when it answers, less when we hear it: too low by the answer's way, and never too high,
        so that nothing is due early. The highest of the last readings is the best.
        """
        stream = names.settled_stream(self._env)
        info = await asked(self._connection.api(f"STREAM.INFO.{stream}"))
        if "ts" in info:
            self._readings.append(parse_time(info["ts"]) - now_ns())
            self._offset = max(self._readings)


def _subjects_of(env: str, lane: LaneId, project: str) -> str:
    if lane.kind == "dead":
        return names.dead_subject(env, project)
    return f"{lane.kind}.{env}.{lane.partition}.{project}.>"


def _call(callbacks: list[Callable[[], None]]) -> None:
    for callback in list(callbacks):
        callback()
