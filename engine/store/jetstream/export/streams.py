"""The streams of an environment, as reported by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.export_port import Stream
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.store.jetstream.api.values import ConsumerInfo, StreamInfo, StreamPage, format_time
from evenlane.engine.store.jetstream.client.replies import ApiError

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.client.connection import Connection

_ANSWER_S = 30.0
_SECOND = 1_000_000_000


async def streams(connection: Connection, subjects: str) -> list[Stream]:
    """The streams that take any of these subjects. Raises ApiError, Disconnected, TimeoutError."""
    found: list[Stream] = []
    while True:
        request = {"offset": len(found), "subject": subjects}
        page = await connection.api_as(StreamPage, "STREAM.LIST", request, timeout=_ANSWER_S)
        if len(page.streams) < len(page.entries or ()):
            raise Disconnected("JetStream's list of streams has some that can't be read")
        found += map(_stream, page.streams)
        if not page.streams or len(found) >= page.total:
            return found


async def stream(connection: Connection, name: str) -> Stream | None:
    """The stream of this name; None if it doesn't exist. Raises ApiError, Disconnected, TimeoutError."""
    try:
        return _stream(await connection.api_as(StreamInfo, f"STREAM.INFO.{name}", timeout=_ANSWER_S))
    except ApiError as error:
        if error.code == 404:
            return None
        raise


def _stream(info: StreamInfo) -> Stream:
    state = info.state
    first = max(1, state.first_seq)  # the server reports 0 for a stream that never had a message
    return Stream(info.name, info.created, first, state.last_seq, state.messages, state.bytes)


async def sequence_at(connection: Connection, name: str, at: int) -> int:
    """The first sequence of messages that arrived at `at` (unix ns) or later. It may not exist yet. Raises ApiError,
    Disconnected, TimeoutError.
    """
    config = {
        "deliver_policy": "by_start_time", "opt_start_time": format_time(at), "ack_policy": "none", "mem_storage": True,
        "num_replicas": 1, "inactive_threshold": 5 * _SECOND,
    }  # fmt: skip
    request = {"stream_name": name, "config": config}
    made = await connection.api_as(ConsumerInfo, f"CONSUMER.CREATE.{name}", request, timeout=_ANSWER_S)
    connection.send(f"$JS.API.CONSUMER.DELETE.{name}.{made.name}", b"")
    return made.delivered.stream_seq + 1
