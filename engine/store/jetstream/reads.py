"""Reads from streams: messages, sequences of a subject, counts of subjects, records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import (
    BusyRecord,
    Disconnected,
    Lost,
    Refused,
    Stored,
    StreamSize,
    SubjectBacklogs,
    SubjectCounts,
)
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.api.request_batch import RequestBatch
from evenlane.engine.store.jetstream.api.responses import NO_STREAM, NOT_FOUND, await_call, has_message, read_stored
from evenlane.engine.store.jetstream.api.values import MessageAnswer, StreamInfo, format_time
from evenlane.engine.store.jetstream.client.replies import ApiError, Reply
from evenlane.engine.store.jetstream.scan import Scan, head_of, sequence_of, subject_and_sequence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Head
    from evenlane.engine.store.jetstream.client.connection import Connection

_AT_ONCE = 256
_TRIES = 5  # to read a log while its owner writes checkpoints
_IN_ONE_ANSWER = 1_000  # messages per response
_ALL = 1_000_000  # more than a log has records, or a lane subjects
_LOGS_AT_ONCE = 64
_BYTES_IN_ONE_ANSWER = 256 << 10
_BELIEVED = 30_000_000_000  # ns; how long a replica count is relied on
_BYTES_OF_A_SCAN = 64 << 10  # a batched get also returns the bodies, which a scan doesn't need


class Reads:
    """The reads of the store port. `restore(lanes)` creates the shared streams, and those of `lanes`, if one was
    deleted at runtime.

    Invariant: `_stored_once` has, for each stream known to have one replica, the time (monotonic ns) until which that
    is relied on.
    """

    def __init__(
        self, connection: Connection, cluster: str, restore: Callable[[Sequence[LaneId]], Awaitable[None]]
    ) -> None:
        self._connection, self._cluster, self._restore = connection, cluster, restore
        self._stored_once: dict[str, int] = {}
        self._last_records = RequestBatch(self._lasts, _LOGS_AT_ONCE)

    # ---- messages

    async def get(self, lane: LaneId, sequences: Sequence[int]) -> list[Stored | None]:
        subject = f"$JS.API.DIRECT.GET.{names.stream(self._cluster, lane)}"
        found: list[Stored | None] = []
        for start in range(0, len(sequences), _AT_ONCE):
            part = sequences[start : start + _AT_ONCE]
            replies = await self._gather(subject, [b'{"seq":%d}' % sequence for sequence in part])
            for sequence, reply in zip(part, replies, strict=True):
                found.append(
                    read_stored(reply) if has_message(reply)
                    else await self.message(names.stream(self._cluster, lane), {"seq": sequence})
                )  # fmt: skip
        return found

    async def _gather(self, subject: str, requests: list[bytes]) -> list[Reply]:
        try:
            replies = [self._connection.ask(subject, request) for request in requests]
            async with asyncio.timeout(10):
                return await asyncio.gather(*replies)
        except (Disconnected, TimeoutError) as error:
            raise Lost(f"reading from {subject} was cut off") from error

    async def message(self, stream: str, which: dict[str, Any]) -> Stored | None:
        """The message as the stream's leader has it; None if it doesn't exist. A lagging replica also answers 404, so
        only the leader's answer counts (E12). Raises Lost.
        """
        try:
            answer = await await_call(self._connection.api_as(MessageAnswer, f"STREAM.MSG.GET.{stream}", which))
        except Refused as error:
            code = error.__cause__.err_code if isinstance(error.__cause__, ApiError) else 0
            if code in NOT_FOUND:
                return None
            if code == NO_STREAM and stream == names.settled_stream(self._cluster):
                await self._restore([])  # deleted at runtime: its owner writes its state again
                return None
            raise Lost(str(error)) from error
        found = answer.message
        return Stored(found.seq, found.at, found.subject, found.hdrs, found.data)

    async def find_since(self, lane: LaneId, at: int) -> int:
        """See `Store.find_since`."""
        stream = names.stream(self._cluster, lane)
        # (in this order: a message that arrives in between is found by the second request)
        info = await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        found = await self.message(stream, {"start_time": format_time(at), "next_by_subj": ">"})
        return found.sequence if found is not None else info.state.last_seq + 1

    async def size(self, lane: LaneId) -> StreamSize:
        """See `Store.size`."""
        stream = names.stream(self._cluster, lane)
        state = (await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))).state
        return StreamSize(state.first_seq, state.messages, state.bytes)

    # ---- subjects

    def note_replicas(self, stream: str, replicas: int, believed_ns: int = _BELIEVED) -> None:
        """Note a stream's replicas, as the server reports them. A stream with one replica is answered for by its leader
        alone. It may get more replicas later, so this is relied on for a limited time only.
        """
        self._stored_once[stream] = now_ns() + believed_ns if replicas == 1 else 0

    def forget_replicas(self, stream: str) -> None:
        """The stream's config has changed: it may have replicas now, which may lag."""
        self._stored_once.pop(stream, None)

    def has_no_replicas(self, stream: str) -> bool:
        """Whether the stream is known to be on one server. Otherwise it has replicas, or isn't known well enough."""
        return now_ns() < self._stored_once.get(stream, 0)

    async def scan(self, lane: LaneId, subject: str, start: int, limit: int) -> list[int]:
        stream = names.stream(self._cluster, lane)
        found: list[int] = []
        if self.has_no_replicas(stream):  # one request instead of two; only safe without replicas, which may lag
            some, complete = await self._some_of(stream, subject, start, min(limit, _IN_ONE_ANSWER), _BYTES_OF_A_SCAN)
            found = [each.sequence for each in some]
            if complete or len(found) >= limit:
                return found
            start = found[-1] + 1 if found else start
        rest = Scan(self._connection, stream, subject, start, limit - len(found), sequence_of)
        return found + await rest.run()

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Stored]:
        stream, which = names.stream(self._cluster, lane), {"seq": start, "next_by_subj": subject}
        if limit > 1:
            found, complete = await self._some_of(
                stream, subject, start, min(limit, _IN_ONE_ANSWER), _BYTES_IN_ONE_ANSWER
            )
        else:
            [reply] = await self._gather(f"$JS.API.DIRECT.GET.{stream}", [msgspec.json.encode(which)])
            found = [read_stored(reply)] if has_message(reply) else []
            complete = reply.headers.startswith(b"NATS/1.0 404")
        if found or (complete and self.has_no_replicas(stream)):
            return found
        answer = await self.message(stream, which)
        return [] if answer is None else [answer]

    async def count(self, lane: LaneId, subject: str, start: int) -> int:
        return await Scan(self._connection, names.stream(self._cluster, lane), subject, start, 0, sequence_of).count()

    async def backlog_after(self, lane: LaneId, position: int) -> SubjectBacklogs:
        stream, pattern = names.stream(self._cluster, lane), f"{names.lane_prefix(self._cluster, lane)}>"
        counts, last = await self.subjects(stream, pattern)
        last_of = dict(await Scan(self._connection, stream, pattern, None, _ALL, subject_and_sequence).run())
        if max(last_of.values(), default=0) < last:  # a replica that lags answered, or the last message is gone
            return SubjectBacklogs(counts, {})
        ends = {subject: last_of[subject] for subject in counts if last_of.get(subject, 0) > position}
        return SubjectBacklogs({subject: counts[subject] for subject in ends}, ends)

    async def heads(self, lane: LaneId, subject: str, start: int, limit: int) -> list[Head]:
        return await Scan(self._connection, names.stream(self._cluster, lane), subject, start, limit, head_of).run()

    async def count_by_subject(self, lane: LaneId, project: str, cluster: str) -> SubjectCounts:
        try:
            return await self.subjects(names.stream(cluster, lane), _subjects_of(cluster, lane, project))
        except Refused as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.code == 404:
                return SubjectCounts({}, 0)
            raise

    async def subjects(self, stream: str, pattern: str) -> SubjectCounts:
        """Read page by page; the last sequence is that of the first page. Raises Lost, Refused."""
        counts: dict[str, int] = {}
        last = -1
        while True:
            request = {"subjects_filter": pattern, "offset": len(counts)}
            info = await await_call(self._connection.api_as(StreamInfo, f"STREAM.INFO.{stream}", request, timeout=30))
            page = info.state.subjects or {}
            counts |= page
            last = info.state.last_seq if last < 0 else last
            if not page or len(counts) >= info.total:
                return SubjectCounts(counts, last)

    # ---- records

    async def busy(self) -> list[BusyRecord]:
        stream = names.stream(self._cluster, names.BUSY)
        try:
            subjects = (
                await self.subjects(
                    names.stream(self._cluster, names.BUSY), names.busy_subject(names.env_of(self._cluster), "*")
                )
            ).counts
        except Refused as error:  # deleted at runtime
            await self._restore([])
            raise Lost(str(error)) from error
        records: list[BusyRecord] = []
        each_of = list(subjects)
        for start in range(0, len(each_of), _AT_ONCE):
            some = each_of[start : start + _AT_ONCE]
            found = await asyncio.gather(*(self.message(stream, {"last_by_subj": subject}) for subject in some))
            records += [BusyRecord(each.at, each.body) for each in found if each is not None]
        return records

    async def log(self, lane: LaneId) -> tuple[list[Stored], int]:
        for _ in range(_TRIES):
            if (found := await self._try_log(lane)) is not None:
                return found
        raise Lost(f"a replica of {names.settled_stream(self._cluster)} lags, or its records change too fast")

    async def _try_log(self, lane: LaneId) -> tuple[list[Stored], int] | None:
        """None if a checkpoint came in between, or a replica lags. Raises Lost."""
        stream, subject = names.settled_stream(self._cluster), names.settled_subject(self._cluster, lane)
        last = await self._last_records.ask(subject) if self.has_no_replicas(stream) else None
        if last is None:  # (only the leader can say that a log doesn't exist)
            last = await self.message(stream, {"last_by_subj": subject})
        if last is None:
            return [], 0
        if h.value(last.headers, "Nats-Rollup") is not None:
            return [last], last.sequence
        found = await self._log_up_to(last.sequence, stream, subject)
        return None if found is None else (found, last.sequence)

    async def last_record(self, lane: LaneId, cluster: str) -> bytes | None:
        """See `Store.read_last_record`. Any replica may answer."""
        stream, subject = names.settled_stream(cluster), names.settled_subject(cluster, lane)
        found, _ = await self._some(stream, {"multi_last": [subject]})
        return found[0].body if found else None

    async def records(self, lane: LaneId, cluster: str) -> list[bytes]:
        """See `Store.read_records`. Any replica may answer."""
        stream, subject = names.settled_stream(cluster), names.settled_subject(cluster, lane)
        found: list[Stored] = []
        is_all = False
        while not is_all:
            start = found[-1].sequence + 1 if found else 1
            some, is_all = await self._some_of(stream, subject, start, _IN_ONE_ANSWER, _BYTES_IN_ONE_ANSWER)
            if not some:
                break
            found += some
        return [each.body for each in found]

    async def _lasts(self, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last record of each of these logs, as far as they fit one response. Raises Lost."""
        stream = names.settled_stream(self._cluster)
        found, _ = await self._some(stream, {"multi_last": list(subjects)})
        return {each.subject: each for each in found}

    async def _log_up_to(self, position: int, stream: str, subject: str) -> list[Stored] | None:
        """All records of a log, the last of which is at `position`; None if that isn't found. Raises Lost."""
        found, _ = await self._some_of(stream, subject, 1, _IN_ONE_ANSWER, _BYTES_IN_ONE_ANSWER)
        if found and found[-1].sequence == position:
            return found
        # A lagging replica, or too much for one response: ask the leader for each record, all at once.
        sequences = await Scan(self._connection, stream, subject, 1, _ALL, sequence_of).run()
        if position not in sequences:
            return None
        answers = await asyncio.gather(
            *(self.message(stream, {"seq": sequence}) for sequence in sequences if sequence <= position)
        )
        return [each for each in answers if each is not None]

    async def _some_of(
        self, stream: str, subject: str, start: int, most: int, most_bytes: int
    ) -> tuple[list[Stored], bool]:
        """The first messages of a subject from `start` on, as some replica has them, in one response; and whether these
        are all that it has. Raises Lost.
        """
        return await self._some(stream, {"seq": start, "next_by_subj": subject, "batch": most, "max_bytes": most_bytes})

    async def _some(self, stream: str, request: dict[str, Any]) -> tuple[list[Stored], bool]:
        """The messages of a batched direct get, and whether these are all. Raises Lost."""
        try:
            replies = await self._connection.ask_all(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(request))
        except (Disconnected, TimeoutError) as error:
            raise Lost(f"reading from {stream} was cut off") from error
        *messages, end = replies
        found, before = [read_stored(reply) for reply in messages], 0
        for headers, sequence in [*((each.headers, each.sequence) for each in found), (end.headers, 0)]:
            if h.read_added_number(headers, "Nats-Last-Sequence", before) != before:  # each names its predecessor
                raise Lost(f"a part of an answer of {stream} is missing")
            before = sequence
        # (404 doesn't prove an end: it also means that the message can't be read)
        return found, end.headers.startswith(b"NATS/1.0 204") and h.number(end.headers, "Nats-Num-Pending", 1) == 0


def _subjects_of(cluster: str, lane: LaneId, project: str) -> str:
    if lane.kind == "dead":
        return names.dead_subject(cluster, project)
    return f"{names.lane_prefix(cluster, lane)}{project}.>"
