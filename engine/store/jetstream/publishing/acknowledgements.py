"""Reads the acknowledgements of published messages, and translates the errors that they report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.core.ports import Full, LogMoved, Lost, QueueFull, Refused, TooLarge
from evenlane.engine.core.request_bus import NO_RESPONDERS
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.store.jetstream.api import write_errors
from evenlane.engine.store.jetstream.api.responses import LATER_ON
from evenlane.engine.store.jetstream.api.values import PubAck, PubError
from evenlane.engine.store.jetstream.client.replies import NONE_OF_JETSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable

_UNAVAILABLE = 503
_NOT_STORED = 10077  # one number for all failures of a store
_KINDS: dict[int, type[Exception]] = {10071: LogMoved, 10164: LogMoved, 10054: TooLarge}
_KINDS |= dict.fromkeys((_NOT_STORED, 10076, 10119, 10122), Full) | dict.fromkeys(LATER_ON, Lost)
_KINDS[10158] = Lost  # the first message of this id isn't stored yet, and may not be

_decoder = msgspec.json.Decoder(PubAck)


def read_ack(headers: bytes, body: bytes, note: Callable[[PubAck], None]) -> PubAck:
    """The acknowledgement of a publish, after passing it to `note`. Raises the error that it reports."""
    if headers and headers.startswith(NO_RESPONDERS):
        raise Lost("no stream takes this subject at the moment")
    try:
        ack = _decoder.decode(body)
    except UNREADABLE:
        raise Lost(NONE_OF_JETSTREAM) from None
    if ack.error is None and (ack.seq < 1 or not ack.stream):
        raise Lost(NONE_OF_JETSTREAM)
    note(ack)
    if ack.error is not None:
        raise _error(ack, ack.error)
    return ack


def _error(ack: PubAck, error: PubError) -> Exception:
    code, text = error.err_code, error.description
    if not code and error.code == _UNAVAILABLE:
        return Lost(text)  # for example, from a deposed leader: the new leader may have stored the message
    if code == _NOT_STORED and "per subject" in text:
        return QueueFull(0)
    if code == _NOT_STORED and text == "maximum messages exceeded":
        return Lost(
            "the stream holds the most messages that it may (max_msgs), as happens while its limit is being lowered"
        )
    unwritable = write_errors.of_refusal(ack)
    return _KINDS.get(code, Refused)(text) if unwritable is None else Full(unwritable.why)
