"""Reads messages without their bodies, through a consumer of its own: the next ones of one subject, or the last one of
each subject.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from evenlane.engine.core.ports import Disconnected, Head, Lost
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.api.values import ConsumerInfo
from evenlane.engine.store.jetstream.client.replies import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.store.jetstream.client.connection import Connection

_SECOND = 1_000_000_000

T = TypeVar("T")


def sequence_of(_subject: bytes, words: list[bytes], _headers: bytes) -> int:
    return int(words[5])


def subject_and_sequence(subject: bytes, words: list[bytes], _headers: bytes) -> tuple[str, int]:
    return subject.decode(), int(words[5])


def head_of(_subject: bytes, words: list[bytes], headers: bytes) -> Head:
    return Head(int(words[5]), int(words[7]), h.read_added_number(headers, "Nats-Msg-Size", 0), headers)


class Scan(Generic[T]):
    """One scan of a subject or pattern, from the sequence `start` on; None: of the last message of each subject. `read`
    converts each message, given its subject, the tokens of its reply subject, and its headers.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        subject: str,
        start: int | None,
        limit: int,
        read: Callable[[bytes, list[bytes], bytes], T],
    ) -> None:
        self._connection, self._stream, self._subject = connection, stream, subject
        self._start, self._limit, self._read = start, limit, read
        self._found: list[T] = []
        self._expected = 1

    async def run(self) -> list[T]:
        """Raises Lost if the response was cut off."""
        await self.count()
        return self._found

    async def count(self) -> int:
        """Read up to `limit` messages, and return how many there are in all. Raises Lost."""
        config = {
            "ack_policy": "none", "filter_subject": self._subject, "headers_only": True, "mem_storage": True,
            "num_replicas": 1, "inactive_threshold": 10 * _SECOND, **_policy(self._start),
        }  # fmt: skip
        connection, stream = self._connection, self._stream
        try:
            request = {"stream_name": stream, "config": config}
            made = await connection.api_as(ConsumerInfo, f"CONSUMER.CREATE.{stream}", request)
            if expected := min(self._limit, made.num_pending):
                await self._collect(made.name, expected)
            connection.send(f"$JS.API.CONSUMER.DELETE.{stream}.{made.name}", b"")  # without it, it would expire later
        except (Disconnected, TimeoutError, ApiError) as error:
            raise Lost(f"the scan of {self._subject} was cut off: {error or 'no answer'}") from error
        return made.num_pending

    async def _collect(self, name: str, expected: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_message(subject: bytes, reply: bytes, headers: bytes, _body: bytes) -> None:
            if done.done():
                return
            words = reply.split(b".")
            if len(words) < 9:
                done.set_result(None)  # a status: the server has no more
                return
            if len(words) > 9:
                del words[2:4]
            try:
                number, read = int(words[6]), self._read(subject, words, headers)
            except (ValueError, IndexError):
                done.set_exception(Disconnected("a message came that isn't from a consumer"))
                return
            if number != len(self._found) + 1:
                done.set_exception(TimeoutError("a gap"))
                return
            self._found.append(read)
            if len(self._found) == expected:
                done.set_result(None)

        def on_lost() -> None:
            if not done.done():
                done.set_exception(Disconnected("NATS went away before it answered"))

        self._connection.on_lost.append(on_lost)
        inbox = self._connection.inbox(f"scan.{name}")
        sid = self._connection.listen(inbox, on_message)
        request = msgspec.json.encode({"batch": expected, "no_wait": True})
        try:
            self._connection.send(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}", request, reply=inbox)
            async with asyncio.timeout(30):
                await done
        finally:
            with contextlib.suppress(ValueError):  # closing the connection empties the list
                self._connection.on_lost.remove(on_lost)
            self._connection.unlisten(sid)


def _policy(start: int | None) -> dict[str, object]:
    if start is None:
        return {"deliver_policy": "last_per_subject"}
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
