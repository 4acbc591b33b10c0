"""Reads the acknowledgements of publishes, and translates the errors that they report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.core.ports import Full, LogMoved, Lost, QueueFull, Refused, TooLarge
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.store.jetstream.api import write_errors
from evenlane.engine.store.jetstream.api.responses import LATER_ON
from evenlane.engine.store.jetstream.api.values import PubAck
from evenlane.engine.store.jetstream.client.replies import NONE_OF_JETSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = b"NATS/1.0 503"
_NOT_STORED = 10077  # one number for all failures of a store
_KINDS: dict[int, type[Exception]] = {10071: LogMoved, 10164: LogMoved, 10054: TooLarge}
_KINDS |= dict.fromkeys((_NOT_STORED, 10076, 10119, 10122), Full) | dict.fromkeys(LATER_ON, Lost)

_decoder = msgspec.json.Decoder(PubAck)


def read_ack(headers: bytes, body: bytes, note: Callable[[PubAck], None]) -> PubAck:
    """The acknowledgement of a publish, after passing it to `note`. Raises the error that it reports."""
    if headers and headers.startswith(NOBODY):
        raise Lost("no stream takes this subject at the moment")
    try:
        ack = _decoder.decode(body)
    except UNREADABLE:
        raise Lost(NONE_OF_JETSTREAM) from None
    note(ack)
    if ack.error is None:
        return ack
    raise _error(ack, ack.error.err_code, ack.error.description)


def _error(ack: PubAck, code: int, text: str) -> Exception:
    if code == _NOT_STORED and "per subject" in text:
        return QueueFull(0)
    if code == _NOT_STORED and text == "maximum messages exceeded":
        return Lost(
            "the stream holds the most messages that it may (max_msgs), as happens while its limit is being lowered"
        )
    unwritable = write_errors.of_refusal(ack)
    return _KINDS.get(code, Refused)(text) if unwritable is None else Full(unwritable.why)
