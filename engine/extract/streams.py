"""The streams of an environment, as the server describes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.stores.jetstream.connection import ApiError

if TYPE_CHECKING:
    from engine.stores.jetstream.connection import Connection

_ANSWER_S = 30.0
_SECOND = 1_000_000_000


class Stream(NamedTuple):
    """`created` tells it from one that had its name before; `first` to `last` are sequences, of which `messages` are
    there still; `bytes` is what the server counts for them. Of one that never had any, from 1 to 0.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int


async def streams(connection: Connection, subjects: str) -> list[Stream]:
    """Those that take any of these subjects. Raises ApiError, Disconnected, TimeoutError."""
    found: list[Stream] = []
    while True:
        request = {"offset": len(found), "subject": subjects}
        page = await connection.api("STREAM.LIST", request, timeout=_ANSWER_S)
        some = page.get("streams") or []
        found += map(_stream, some)
        if not some or len(found) >= page["total"]:
            return found


async def stream(connection: Connection, name: str) -> Stream | None:
    """None if there is none. Raises as above."""
    try:
        return _stream(await connection.api(f"STREAM.INFO.{name}", timeout=_ANSWER_S))
    except ApiError as error:
        if error.code == 404:
            return None
        raise


def _stream(said: dict[str, Any]) -> Stream:
    state = said["state"]
    name, created = said["config"]["name"], said["created"]
    first = max(1, state["first_seq"])  # the server says 0 of a stream that never had a message
    return Stream(name, created, first, state["last_seq"], state["messages"], state["bytes"])


async def sequence_at(connection: Connection, name: str, at: int) -> int:
    """The sequence from which on messages came at `at` (unix ns) or later, which may be one that isn't there yet.
    Raises as above.
    """
    config = {
        "deliver_policy": "by_start_time", "opt_start_time": rfc3339(at), "ack_policy": "none", "mem_storage": True,
        "num_replicas": 1, "inactive_threshold": 5 * _SECOND,
    }  # fmt: skip
    answer = await connection.api(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": config}, timeout=_ANSWER_S)
    connection.send(f"$JS.API.CONSUMER.DELETE.{name}.{answer['name']}", b"")
    return int(answer["delivered"]["stream_seq"]) + 1


def rfc3339(at: int) -> str:
    """To the nanosecond."""
    whole = datetime.fromtimestamp(at // _SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{at % _SECOND:09d}Z"
