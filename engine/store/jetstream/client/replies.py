"""Replies of NATS, and how those of JetStream's API are read."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import EvenlaneError

T = TypeVar("T")

TIME = "Nats-Time-Stamp"
"""A header that the server adds to each stored message that it returns, and to nothing else."""
NONE_OF_JETSTREAM = "an answer came that isn't from JetStream"


class Reply(NamedTuple):
    headers: bytes
    body: bytes


class _Refusal(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiError(EvenlaneError):
    """JetStream refused a request; `code` is HTTP-like, `err_code` JetStream's own number."""

    def __init__(self, verb: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream refused {verb}: {description} ({code}/{err_code})")
        self.code, self.err_code = code, err_code


class Denied(ApiError):
    """This user may not publish to the subject of a request."""

    def __init__(self, subject: str) -> None:
        super().__init__(subject.removeprefix("$JS.API."), 403, 0, f"this user may not publish to {subject}")


def decode_response(verb: str, reply: Reply) -> dict[str, Any]:
    """The decoded response of JetStream's API. Raises ApiError, and Disconnected for a malformed response."""
    if reply.headers.startswith(b"NATS/1.0 503"):
        raise ApiError(verb, 503, 0, "JetStream is not available")
    try:
        answer = msgspec.json.decode(reply.body, type=dict[str, Any])
        refusal = msgspec.convert(answer.get("error"), _Refusal | None)
    except UNREADABLE:
        raise Disconnected(NONE_OF_JETSTREAM) from None
    if refusal is not None:
        raise ApiError(verb, refusal.code, refusal.err_code, refusal.description)
    return answer


def read_as(kind: type[T], verb: str, answer: dict[str, Any]) -> T:
    """The response of JetStream's API as a value. Raises Disconnected for one of another shape."""
    try:
        return msgspec.convert(answer, kind)
    except UNREADABLE as error:
        raise Disconnected(f"{NONE_OF_JETSTREAM}: {verb}: {error}") from None
