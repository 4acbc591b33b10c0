"""Reads a range of a stream's messages in order and in bounded memory: it requests some megabytes, and the next ones
when these have been consumed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import msgspec

from evenlane.engine.core.export_port import Read
from evenlane.engine.core.ports import Disconnected, Stored
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.store.jetstream.api.values import ConsumerInfo
from evenlane.engine.store.jetstream.client.replies import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from evenlane.engine.core.export_port import Range
    from evenlane.engine.store.jetstream.client.connection import Connection

_SECOND = 1_000_000_000
_BYTES = 4 << 20  # per pull; a single message may be larger
_MESSAGES = 20_000
_OVERHEAD = 4_096  # bytes of subjects and headers that the server counts in addition to a payload
_ANSWER_S = 10.0
_TIMEOUT_S = 60.0  # how long to wait for an unreachable server, or a stream without a leader
_PAUSE_S = 0.25
_IDLE_S = 60
_FULL = (b"MaxBytes", b"Batch Completed")  # regular ends of a pull (409); other ones mean a failing server


async def read(
    connection: Connection, requested: Range, *, messages: int = _MESSAGES, timeout_s: float = _TIMEOUT_S
) -> AsyncGenerator[list[Read], None]:
    """Read page by page, up to `messages` each. Messages deleted meanwhile are left out. Waits up to `timeout_s` for a
    server that goes away. Raises Unreachable, EvenlaneError.
    """
    clock = asyncio.get_running_loop().time
    position, since = requested.first - 1, clock()
    while position < requested.last:
        try:
            async with _Consumer(connection, requested, position + 1, messages, timeout_s) as consumer:
                while position < requested.last:
                    page = await consumer.page()
                    found = [each for each in page if each.stored.sequence <= requested.last]
                    if found:
                        yield found
                    if not page or len(found) < len(page) or consumer.exhausted:
                        return
                    position, since = page[-1].stored.sequence, clock()
        except ApiError as error:
            if error.code == 404 and "stream" in str(error):
                raise EvenlaneError(f"stream {requested.stream} was deleted while it was being read") from error
            _give_up(clock() - since, timeout_s, requested, error)
        except (Disconnected, TimeoutError) as error:
            _give_up(clock() - since, timeout_s, requested, error)
        await asyncio.sleep(_PAUSE_S)


def _give_up(waited: float, timeout_s: float, requested: Range, error: Exception) -> None:
    if waited > timeout_s:
        why = str(error) or "no answer in time"
        raise Unreachable(f"stream {requested.stream} can't be read for {waited:.0f} s: {why}") from error


class _Consumer:
    """One ephemeral ack-none consumer; only the messages that `page` requests are in transit.

    Invariant: `_expected` is the consumer sequence that the next message must have. A page is awaited while
    `_done` is set and not done; `_page` has its messages so far. Once `exhausted`, the consumer has no more messages.
    """

    def __init__(self, connection: Connection, requested: Range, start: int, messages: int, timeout_s: float) -> None:
        self._connection, self._requested, self._start = connection, requested, start
        self._messages, self._timeout_s = messages, timeout_s
        self._expected = 1
        self._page: list[Read] = []
        self._done: asyncio.Future[None] | None = None
        self.exhausted = False
        self._name = ""
        self._sid = 0

    async def __aenter__(self) -> Self:
        config: dict[str, Any] = {
            "deliver_policy": "by_start_sequence", "opt_start_seq": self._start, "ack_policy": "none",
            "mem_storage": True, "num_replicas": 1, "inactive_threshold": _IDLE_S * _SECOND,
            "headers_only": not self._requested.bodies, **_filter(self._requested.subjects),
        }  # fmt: skip
        stream = self._requested.stream
        request = {"stream_name": stream, "config": config}
        made = await self._connection.api_as(ConsumerInfo, f"CONSUMER.CREATE.{stream}", request, timeout=_ANSWER_S)
        self._name, self.exhausted = made.name, not made.num_pending
        self._inbox = self._connection.inbox(f"range.{self._name}")
        self._sid = self._connection.listen(self._inbox, self._take)
        self._connection.on_lost.append(self._on_lost)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._on_lost in self._connection.on_lost:
            self._connection.on_lost.remove(self._on_lost)
        self._connection.unlisten(self._sid)
        try:
            self._connection.send(f"$JS.API.CONSUMER.DELETE.{self._requested.stream}.{self._name}", b"")
        except Disconnected:
            return  # the server removes it later

    async def page(self) -> list[Read]:
        """The next messages, none if there are no more. Raises Disconnected, TimeoutError."""
        if self.exhausted:
            return []
        self._page, self._done = [], asyncio.get_running_loop().create_future()
        most = max(_BYTES, self._connection.max_payload + _OVERHEAD)
        request = {"batch": self._messages, "max_bytes": most, "no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._requested.stream}.{self._name}"
        self._connection.send(subject, msgspec.json.encode(request), reply=self._inbox)
        async with asyncio.timeout(self._timeout_s):
            await self._done
        return self._page

    # ---- called from the parser

    def _take(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if self._done is None or self._done.done():
            return
        if not reply.startswith(b"$JS.ACK."):
            self._status(headers)
            return
        words = reply.split(b".")
        if len(words) > 9:  # with domain and account hash
            del words[2:4]
        try:
            sequence, number, at = int(words[5]), int(words[6]), int(words[7])
        except (ValueError, IndexError):
            self._done.set_exception(Disconnected("a message came that isn't from a consumer"))
            return
        if number != self._expected:
            self._done.set_exception(Disconnected("a message of the consumer is missing"))
            return
        self._expected += 1
        size = len(body) if self._requested.bodies else h.read_added_number(headers, "Nats-Msg-Size", 0)
        self._page.append(Read(Stored(sequence, at, subject.decode("utf-8", "replace"), headers, body), size))
        self.exhausted = words[8] == b"0"
        if self.exhausted or sequence >= self._requested.last or len(self._page) == self._messages:
            self._done.set_result(None)

    def _status(self, headers: bytes) -> None:
        assert self._done is not None
        code = headers[9:12]
        if code == b"404":
            self.exhausted = True
        if code in (b"404", b"408") or (code == b"409" and any(words in headers[:60] for words in _FULL)):
            self._done.set_result(None)
        elif code != b"100":
            self._done.set_exception(Disconnected(headers[9:80].split(b"\r\n")[0].decode("utf-8", "replace")))

    def _on_lost(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(Disconnected("NATS went away"))


def _filter(subjects: Sequence[str]) -> dict[str, Any]:
    if len(subjects) == 1:
        return {"filter_subject": subjects[0]}
    return {"filter_subjects": list(subjects)} if subjects else {}
