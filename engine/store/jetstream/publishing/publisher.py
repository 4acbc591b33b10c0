"""Publishes messages and records of settle logs, and translates the acknowledgements."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from evenlane.engine.base import names
from evenlane.engine.core.ports import Disconnected, LogMoved, Lost, QueueFull, Receipt, Refused
from evenlane.engine.core.request_bus import NO_RESPONDERS
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.publishing.acknowledgements import read_ack
from evenlane.engine.store.jetstream.publishing.reply_slots import ReplySlots
from evenlane.engine.store.refusals import too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.store.jetstream.api.values import PubAck
    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.client.replies import Reply

T = TypeVar("T")


class Publisher:
    """The puts and appends of one store. `note` receives each acknowledgement, refusals included.

    A message above the server's limit is refused here: the server would cut the connection for it.

    State that the store shares:
    - `queue_limit`: the most messages per queue, as prepared last; None: unknown here.
    - `found_no_stream` is set by a publish that no stream took. The store clears it, and creates the shared streams
      that were deleted.
    """

    def __init__(self, connection: Connection, cluster: str, note: Callable[[PubAck], None]) -> None:
        self._connection, self._cluster, self._note = connection, cluster, note
        self._outbox = connection.outbox
        self._slots = ReplySlots(connection.new_inbox())
        connection.on_unanswered.append(self._fail)
        connection.on_publish_denied.append(self._on_denied)
        self.queue_limit: int | None = None
        self.found_no_stream = False

    def open(self) -> None:
        """Listen for the answers to `put_then`, on an open connection."""
        self._connection.listen(self._slots.wildcard, self._on_answer)

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        """See `Store.put`."""
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._publish(subject, headers, body, stored, _receipt)
        return stored

    def put_then(
        self, subject: str, headers: bytes, body: bytes, answered: Callable[[Receipt | Exception], None]
    ) -> None:
        """See `Store.put_then`."""
        if error := too_large(len(headers) + len(body), self._outbox.max_payload):
            asyncio.get_running_loop().call_soon(answered, error)
            return
        target = self._slots.target(subject)
        reply = self._slots.take(target, answered)
        try:
            self._outbox.publish(target.subject, body, headers, reply)
        except Disconnected as error:
            self._slots.forget(reply)
            raise Lost(str(error)) from error

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        """See `Store.append_log`."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        if checkpoint:
            headers["Nats-Rollup"] = "sub"
        position: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        subject = names.settled_subject(self._cluster, lane)
        self._publish(subject, h.encode(headers), record, position, lambda ack: ack.seq)
        return position

    def _on_answer(self, subject: bytes, _reply: bytes, headers: bytes, body: bytes) -> None:
        try:
            outcome: Receipt | Exception = _receipt(self._read_ack(headers, body))
        except (Refused, Lost, LogMoved) as error:
            outcome = error
        self._slots.settle(subject, outcome)

    @property
    def puts(self) -> int:
        """The number of `put_then` so far: a mark for `give_up`."""
        return self._slots.puts

    def give_up(self, mark: int) -> None:
        """Fail puts from before this mark that still have no answer: none will come."""
        self._slots.give_up(mark, Lost("NATS did not answer in time"))

    def _on_denied(self, subject: str) -> None:
        self._slots.refuse(subject, Refused(f"this user of NATS may not publish to {subject}"))

    def _fail(self, why: str) -> None:
        self._slots.fail(Lost(why))

    def _publish(
        self,
        subject: str,
        headers: bytes,
        body: bytes,
        result: asyncio.Future[T],
        read: Callable[[PubAck], T],
    ) -> None:
        if error := too_large(len(headers) + len(body), self._connection.max_payload):
            result.set_exception(error)
            return
        try:
            self._connection.ask_then(subject, body, headers, partial(self._resolve, result, read))
        except Disconnected as error:
            result.set_exception(Lost(str(error)))

    def _resolve(self, result: asyncio.Future[T], read: Callable[[PubAck], T], reply: Reply | Disconnected) -> None:
        """Resolve a publish with its response."""
        if result.done():
            return
        if isinstance(reply, Disconnected):
            result.set_exception(Lost(str(reply)))
            return
        try:
            result.set_result(read(self._read_ack(reply.headers, reply.body)))
        except (Refused, Lost, LogMoved) as error:
            result.set_exception(error)

    def _read_ack(self, headers: bytes, body: bytes) -> PubAck:
        """The acknowledgement in the response to a publish; raises the error that it reports."""
        if headers and headers.startswith(NO_RESPONDERS):
            self.found_no_stream = True
        try:
            return read_ack(headers, body, self._note)
        except QueueFull:
            raise QueueFull(max(0, self.queue_limit or 0)) from None


def _receipt(ack: PubAck) -> Receipt:
    # (NamedTuple's own constructor is interpreted, and takes twice the time)
    return tuple.__new__(Receipt, (ack.stream, ack.seq, ack.duplicate))
