"""Translates JetStream's responses into the values and errors of the store port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.core.ports import Disconnected, Lost, Refused, Stored
from evenlane.engine.core.wire import headers as h
from evenlane.engine.store.jetstream.api.values import parse_time
from evenlane.engine.store.jetstream.client.replies import NONE_OF_JETSTREAM, TIME, ApiError, Reply

if TYPE_CHECKING:
    from collections.abc import Coroutine

NOT_FOUND = (10037, 10043)
_DELETE_FAILED = 10057
NO_STREAM = 10059
LEADERLESS = (10008, 10009)
LATER_ON = (*LEADERLESS, 10005, 10074, 10003)  # no leader, no responder, no resources: worth a retry

T = TypeVar("T")


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


async def await_call(call: Coroutine[Any, Any, T]) -> T:
    try:
        return await call
    except (Disconnected, TimeoutError) as error:
        raise Lost(str(error) or "NATS did not answer in time") from error
    except ApiError as error:
        if error.err_code in LEADERLESS:
            raise Lost(f"JetStream has no leader, as too few of its servers answer ({error.err_code})") from error
        if error.code == 503 or error.err_code in LATER_ON:
            raise Lost(str(error)) from error
        raise Refused(str(error)) from error
