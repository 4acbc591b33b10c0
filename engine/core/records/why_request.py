"""The question why a project's messages wait, as a node gets it (docs/reference/messages.md)."""

from __future__ import annotations

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE


class WhyRequest(msgspec.Struct, omit_defaults=True):
    """What the answer should have besides the backlog: the `positions` of the queues of a `priority` ("": of all)."""

    positions: bool = False
    priority: str = ""


def subject(cluster: str, project: str) -> str:
    """Return the subject of requests about a project; `*` for all projects."""
    return f"ask.{cluster}.why.{project}"


def encode(request: WhyRequest) -> bytes:
    """Encode a request. An older node ignores it, and answers without positions."""
    return msgspec.json.encode(request) if request.positions else b""


def decode(body: bytes) -> WhyRequest:
    """Decode a request; one that can't be read asks for nothing more."""
    try:
        return msgspec.json.decode(body, type=WhyRequest) if body else WhyRequest()
    except UNREADABLE:
        return WhyRequest()
