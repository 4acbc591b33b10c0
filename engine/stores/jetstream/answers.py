"""What JetStream answers, in the port's words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from engine import headers as h
from engine.ports import Full, LogMoved, Lost, QueueFull, Receipt, Refused, Stored, TooLarge
from engine.stores.jetstream.connection import ApiError, Disconnected, Reply

if TYPE_CHECKING:
    from collections.abc import Coroutine

_WRONG_LAST = (10071, 10164)
NOT_FOUND = (10037, 10043)
_DELETE_FAILED = 10057
NO_STREAM = 10059
NOBODY = b"NATS/1.0 503"
_TOO_LARGE = 10054
_FULL = (10077, 10076, 10119, 10122)
_NOT_STORED = 10077  # one number for all that can go wrong in a store
_LATER_ON = (10008, 10009, 10005, 10074, 10003)  # no leader, no responder, no resources: ask again

T = TypeVar("T")


class PubAck(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: dict[str, Any] | None = None


_puback = msgspec.json.Decoder(PubAck)


def was_gone(error: BaseException | None) -> bool:
    """Whether what was to be deleted isn't there: the server has one number for all that can go wrong with it."""
    if not isinstance(error, ApiError):
        return False
    gone = "no message found" in str(error) or "deleted message" in str(error)
    return error.err_code in NOT_FOUND or (error.err_code == _DELETE_FAILED and gone)


def parse_time(text: str) -> int:
    """RFC 3339 with up to nine decimals, as unix ns."""
    whole, _, rest = text.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return int(seconds) * 1_000_000_000 + (int(rest.ljust(9, "0")[:9]) if rest else 0)


def stored(reply: Reply) -> Stored:
    block = reply.headers
    return Stored(
        h.number(block, "Nats-Sequence", 0),
        parse_time(h.value(block, "Nats-Time-Stamp") or "1970-01-01T00:00:00Z"),
        h.value(block, "Nats-Subject") or "",
        block,
        reply.body,
    )


def receipt(ack: PubAck) -> Receipt:
    return Receipt(ack.stream, ack.seq, ack.duplicate)


def checked(reply: Reply) -> PubAck:
    """The acknowledgement of a publish; raises what it says is wrong."""
    if reply.headers.startswith(NOBODY):
        raise Lost("no stream takes this subject at the moment")
    ack = _puback.decode(reply.body)
    if ack.error is None:
        return ack
    code, text = ack.error.get("err_code", 0), ack.error.get("description", "refused")
    if code in _WRONG_LAST:
        raise LogMoved(text)
    if code == _TOO_LARGE:
        raise TooLarge(text)
    if code == _NOT_STORED and "per subject" in text:
        raise QueueFull(0)
    if code == _NOT_STORED and text == "maximum messages exceeded":
        raise Lost("the stream takes nothing while its limit is being lowered")
    if code in _FULL:
        raise Full(text)
    if code in _LATER_ON:
        raise Lost(text)
    raise Refused(text)


async def asked(call: Coroutine[Any, Any, T]) -> T:
    try:
        return await call
    except (Disconnected, TimeoutError) as error:
        raise Lost(str(error) or "NATS did not answer in time") from error
    except ApiError as error:
        if error.code == 503 or error.err_code in _LATER_ON:
            raise Lost(str(error)) from error
        raise Refused(str(error)) from error
