"""Translates JetStream's responses into the values and errors of the store port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from evenlane.engine.core.ports import Disconnected, Full, LogMoved, Lost, QueueFull, Receipt, Refused, Stored, TooLarge
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.store.jetstream.api import write_errors
from evenlane.engine.store.jetstream.api.values import PubAck, parse_time
from evenlane.engine.store.jetstream.client.replies import NONE_OF_JETSTREAM, TIME, ApiError, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_WRONG_LAST = (10071, 10164)
NOT_FOUND = (10037, 10043)
_DELETE_FAILED = 10057
NO_STREAM = 10059
NOBODY = b"NATS/1.0 503"
_TOO_LARGE = 10054
_FULL = (10077, 10076, 10119, 10122)
_NOT_STORED = 10077  # one number for all failures of a store
_LATER_ON = (10008, 10009, 10005, 10074, 10003)  # no leader, no responder, no resources: worth a retry

T = TypeVar("T")

_puback = msgspec.json.Decoder(PubAck)


def was_gone(error: BaseException | None) -> bool:
    """Whether a message to be deleted didn't exist. The server has one number for all failures of a delete."""
    if not isinstance(error, ApiError):
        return False
    gone = "no message found" in str(error) or "deleted message" in str(error)
    return error.err_code in NOT_FOUND or (error.err_code == _DELETE_FAILED and gone)


def read_stored(reply: Reply) -> Stored:
    """The message of a direct get. Raises Lost if the headers that the server adds are missing."""
    block = reply.headers
    sequence, subject = h.read_added_number(block, "Nats-Sequence", 0), h.read_added(block, "Nats-Subject")
    try:
        at = parse_time(h.read_added(block, TIME) or "")
    except ValueError:
        at = 0
    if not (sequence and subject and at):
        raise Lost(NONE_OF_JETSTREAM)
    return Stored(sequence, at, subject, block, reply.body)


def has_message(reply: Reply) -> bool:
    """Whether a direct get returned a message, and not a status. The first line of a message's headers doesn't tell, as
    its producer may write anything there.
    """
    return h.read_added(reply.headers, TIME) is not None


def receipt(ack: PubAck) -> Receipt:
    return Receipt(ack.stream, ack.seq, ack.duplicate)


def _read(reply: Reply) -> PubAck:
    try:
        return _puback.decode(reply.body)
    except UNREADABLE:
        raise Lost(NONE_OF_JETSTREAM) from None


def check_ack(reply: Reply, note: Callable[[PubAck], None]) -> PubAck:
    """The acknowledgement of a publish, after passing it to `note`. Raises the error that it reports."""
    if reply.headers.startswith(NOBODY):
        raise Lost("no stream takes this subject at the moment")
    ack = _read(reply)
    note(ack)
    if ack.error is None:
        return ack
    code, text = ack.error.err_code, ack.error.description
    if code in _WRONG_LAST:
        raise LogMoved(text)
    if code == _TOO_LARGE:
        raise TooLarge(text)
    if code == _NOT_STORED and "per subject" in text:
        raise QueueFull(0)
    if code == _NOT_STORED and text == "maximum messages exceeded":
        raise Lost(
            "the stream holds the most messages that it may (max_msgs), as happens while its limit is being lowered"
        )
    if (unwritable := write_errors.of_refusal(ack)) is not None:
        raise Full(unwritable.why)
    if code in _FULL:
        raise Full(text)
    if code in _LATER_ON:
        raise Lost(text)
    raise Refused(text)


async def await_call(call: Coroutine[Any, Any, T]) -> T:
    try:
        return await call
    except (Disconnected, TimeoutError) as error:
        raise Lost(str(error) or "NATS did not answer in time") from error
    except ApiError as error:
        if error.code == 503 or error.err_code in _LATER_ON:
            raise Lost(str(error)) from error
        raise Refused(str(error)) from error
