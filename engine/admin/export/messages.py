"""Decodes messages of lanes and dead letters for reports, from their subjects and headers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message import dead_letter
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import read_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.admin.backlog.scan import LaneView
    from evenlane.engine.core.export_port import Read
    from evenlane.engine.core.ports import Stored


class WaitingRow(NamedTuple):
    """A message that waits or is being handled. Times are unix ns, None if there is none; `attempt` is the next one."""

    stream: str
    kind: str
    partition: int
    sequence: int
    stored: int
    subject: str
    project: str | None
    group: int | None
    priority: str | None
    id: str | None
    key: str | None
    attempt: int
    put_at: int
    due_at: int | None
    expires_at: int | None
    size: int
    body: bytes | None


class DeadRow(NamedTuple):
    """A dead letter; see engine/core/message/dead_letter.py."""

    sequence: int
    died_at: int
    subject: str
    project: str
    group: int | None
    priority: str | None
    partition: int | None
    id: str
    key: str | None
    attempts: int
    reason: str
    error: str
    put_at: int
    size: int
    body: bytes | None


def lane_of(stream: str, env: str) -> LaneId | None:
    """Return the lane with this stream name; None if it is no lane of this environment."""
    for kind, prefix in (("lanes", f"LANES_{env}_"), ("later", f"LATER_{env}_")):
        number = names.number(stream.removeprefix(prefix)) if stream.startswith(prefix) else None
        if number is not None:
            return LaneId(kind, number)  # type: ignore[arg-type]
    return None


def build_rows(
    page: Iterable[Read], lane: LaneId, view: LaneView | None, env: str, *, bodies: bool
) -> Iterator[WaitingRow]:
    """Yield the messages of a page that aren't settled; all of them without a `view`."""
    stream = names.stream(env, lane)
    for stored, size in page:
        if view is None or stored.sequence not in view.settled:
            yield _build_row(stored, size, stream, lane, bodies=bodies)


def _build_row(stored: Stored, size: int, stream: str, lane: LaneId, *, bodies: bool) -> WaitingRow:
    project, group, priority = _queue(stored.subject)
    block, sequence, at = stored.headers, stored.sequence, stored.at
    return WaitingRow(
        stream, lane.kind, lane.partition, sequence, at, stored.subject, project, group, priority,
        _id(block, project, f"{stream}-{sequence}-{at}"), header_values.key(block), header_values.attempt(block),
        read_instant(block, h.PUT, at), read_instant(block, h.DUE, 0) or None,
        read_instant(block, h.EXPIRES, 0) or None, size, stored.body if bodies else None,
    )  # fmt: skip


def dead(page: Iterable[Read], cluster: str, *, bodies: bool) -> Iterator[DeadRow]:
    for stored, size in page:
        found = dead_letter.read(stored, cluster)
        place = found.place
        yield DeadRow(
            stored.sequence, stored.at, stored.subject, found.project, place and place.group, place and place.priority,
            place and place.partition, found.id, found.key, found.attempts, found.reason, found.error, found.put_at,
            size, stored.body if bodies else None,
        )  # fmt: skip


def _queue(subject: str) -> tuple[str | None, int | None, str | None]:
    """Return project, group and priority; all None if no queue has this subject."""
    words = subject.split(".")
    group = names.number(words[4]) if len(words) in (6, 7) else None
    if group is None or not names.is_project(words[3]):
        return None, None, None
    return words[3], group, words[5]


def _id(block: bytes, project: str | None, without: str) -> str | None:
    """Return the id under which the message was first put. If it was put without an id, return `without`, the id that
    handlers get (engine/core/message/message.py).
    """
    if project is None:
        return h.value(block, h.ID) or without
    return header_values.own_id(block, project) or without
