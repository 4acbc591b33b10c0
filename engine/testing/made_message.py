"""Makes messages for unit tests that just call a handler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.message.body_codec import encode
from evenlane.engine.core.message.message import Message
from evenlane.engine.core.queue.entry import entry_of
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidPut

_PRIORITIES = ("high", "mid", "low")
_SECOND = 1_000_000_000
_numbers = count(1)


def message(
    project: str,
    body: Any = b"",
    *,
    attempt: int = 1,
    key: str | None = None,
    priority: str = "mid",
    group: int = 0,
    headers: Mapping[str, str] | None = None,
    id: str | None = None,  # noqa: A002 - the name in the public surface
    put_at: datetime | None = None,
    due_at: datetime | None = None,
    data: Any = None,
    state: Any = None,
    batched: bool = False,
    subscription: str = "",
) -> Message:
    """Make a message to call a handler with: `await handle(message("acme", b"..."))`. The other arguments are what its
    attributes return; `put_at` is now by default.

    `body` is bytes, or an object as for `put`. An object is also the message's `data`, unless `data` is given. With
    `batched`, `Message.fail` notes the error in `failure`, as for a message of a batch. Raises InvalidName, InvalidPut,
    or TypeError for another body.
    """
    names.check_project(project)
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidPut(f"headers must be a mapping of names to strings, and these are a {type(headers).__name__}")
    raw, own = encode(body, headers)
    number = next(_numbers)
    put_ns = _unix_ns(put_at or datetime.now(UTC), "put_at")
    values = _headers(project, own or {}, f"m{number}" if id is None else id, key, attempt)
    if put_at is not None or attempt > 1:
        values[h.PUT] = str(put_ns)
    if due_at is not None:
        values[h.DUE] = str(_unix_ns(due_at, "due_at"))
    is_new = attempt == 1 and due_at is None
    lane = Lane(LaneId("lanes" if is_new else "later", 0), 1)
    band = _PRIORITIES.index(priority) if priority in _PRIORITIES else 0
    cluster = names.cluster_name("online", names.check_subscription(subscription) if subscription else "")
    queue = Queue(project, group, names.check_priority_name(priority), band, 0)
    made = Message(entry_of(lane, number, put_ns, h.encode(values), raw), queue, cluster, "test", now_ns())
    decoded = body if data is None and not isinstance(body, bytes | bytearray | memoryview) else data
    if decoded is not None:
        made.decoded = decoded
    if state is not None:
        made.app_state = state
    made.is_batched = batched
    return made


def _headers(project: str, own: Mapping[str, str], id_: str, key: str | None, attempt: int) -> dict[str, str]:
    h.check_user(own)
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        raise InvalidPut(f"attempt {attempt!r} is not valid: it must be a whole number from 1")
    values = {h.ID: f"{project}:{names.check_id(id_)}"}
    if key is not None:
        values[h.KEY] = names.check_key(key)
    if attempt > 1:
        values[h.ATTEMPT] = str(attempt)
    return values | dict(own)


def _unix_ns(at: datetime, what: str) -> int:
    if at.tzinfo is None:
        raise InvalidPut(f"{what} {at.isoformat()} has no time zone: give one, such as datetime.now(UTC)")
    return round(at.timestamp() * 1_000_000) * (_SECOND // 1_000_000)
