"""Carries out `evenlane backlog peek`: lists the next messages of a project by priority, with everything known about
them except their whole body.
"""

from __future__ import annotations

import contextlib
import heapq
from base64 import b64encode
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.admin.backlog.scan import (
    count_waiting,
    iter_waiting,
    list_subjects,
    map_concurrently,
    views,
)
from evenlane.engine.admin.session import open_session
from evenlane.engine.base import names
from evenlane.engine.core.queue.subscriber import UNNAMED
from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import message_id, read_instant
from evenlane.engine.core.wire.queue_subjects import HOUR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Head, Store
    from evenlane.engine.core.queue.subscriber import Subscriber
    from evenlane.engine.core.wire.queue_subjects import Subject

    Heads = Callable[[Subject], AsyncIterator[list[Head]]]

SHOWN_BYTES = 80  # of a body
_BODIES_AT_ONCE = 16
_QUEUES_AT_ONCE = 64


class WaitingMessage(NamedTuple):
    """A waiting message. Messages compare by `turn`: the due time if the message has one, otherwise its arrival time;
    both in unix ns.
    """

    turn: int
    stream: str
    sequence: int
    lane: LaneId
    group: int
    head: Head


async def peek(settings: Settings, project: str, priority: str | None, limit: int) -> dict[str, Any]:
    """Return the backlog of a subscription in JSON types, with the first `limit` messages of each priority, or of this
    one. `others` are the named subscriptions that have backlogs of their own.

    Raises InvalidName, UnknownProject, Unreachable.
    """
    async with open_session(settings, project) as outside:
        ttl = outside.accepted.topic.ttl if outside.accepted is not None else 0.0
        parts = await list_next(
            outside.store, outside.cluster, outside.cluster_config, project, outside.priorities(priority), limit, ttl,
            outside.subscriber,
        )  # fmt: skip
        others = await outside.list_others()
        if outside.accepted is None and not any(part["waiting"] or part["delayed"] for part in parts):
            raise outside.unknown()
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    shown = {"project": project, "env": settings.env, "subscription": settings.subscription, "others": others}
    return {**shown, "at": at, "priorities": parts}


async def list_next(
    store: Store,
    cluster: str,
    cluster_config: ClusterConfig,
    project: str,
    priorities: Sequence[str],
    limit: int,
    ttl: float,
    subscriber: Subscriber = UNNAMED,
) -> list[dict[str, Any]]:
    """Return, for each priority, the number of waiting messages and the first `limit` of them. `ttl` (s) is the
    topic's, 0 if it has none.

    Raises Lost, Refused, ConfigError.
    """
    subjects = await list_subjects(store, cluster_config, project, priorities, subscriber=subscriber)
    known = await views(store, subjects, subscriber)

    def heads(subject: Subject) -> AsyncIterator[list[Head]]:
        return iter_waiting(store, subject, known[subject.lane])

    found = []
    for priority in priorities:
        mine = [subject for subject in subjects if subject.priority == priority]
        counts = await map_concurrently(mine, lambda subject: count_waiting(store, subject, known[subject.lane]))
        of = {kind: _sum(mine, counts, kind) for kind in names.LANE_KINDS}
        first = await _first(cluster, mine, limit, heads)
        shown = await _documents(store, first, project, ttl)
        found.append(
            {"priority": priority, "waiting": of["lanes"], "delayed": of["later"] + of["again"], "messages": shown}
        )
    return found


def _sum(subjects: Iterable[Subject], counts: Iterable[int], kind: str) -> int:
    return sum(count for subject, count in zip(subjects, counts, strict=True) if subject.lane.kind == kind)


async def _first(cluster: str, subjects: list[Subject], limit: int, heads: Heads) -> list[WaitingMessage]:
    """Return the `limit` messages whose turn is first, keeping no more than these in memory.

    A lane has the messages of one queue in the order of their sequences. A delay stream has only the hours in order, so
    all heads of a relevant hour are read.
    """

    async def of_lane(subject: Subject) -> list[WaitingMessage]:
        found: list[WaitingMessage] = []
        async for page in heads(subject):
            found += [_build_message(cluster, subject, head) for head in page[: limit - len(found)]]
            if len(found) == limit:
                break
        return found

    async def of_hour(subject: Subject) -> list[WaitingMessage]:
        found: list[WaitingMessage] = []
        async for page in heads(subject):
            found = heapq.nsmallest(limit, [*found, *(_build_message(cluster, subject, head) for head in page)])
        return found

    first: list[WaitingMessage] = []
    due = [subject for subject in subjects if subject.lane.kind == "lanes"]
    for start in range(0, len(due), _QUEUES_AT_ONCE):
        first = _merge(limit, first, await map_concurrently(due[start : start + _QUEUES_AT_ONCE], of_lane))
    later = sorted((each for each in subjects if each.lane.kind != "lanes"), key=lambda each: each.hour)
    for hour, of_one in groupby(later, key=lambda each: each.hour):
        if len(first) == limit and first[-1].turn < hour * HOUR:
            break
        first = _merge(limit, first, await map_concurrently(of_one, of_hour))
    return first


def _merge(limit: int, first: list[WaitingMessage], more: Iterable[list[WaitingMessage]]) -> list[WaitingMessage]:
    return heapq.nsmallest(limit, [*first, *(message for part in more for message in part)])


def _build_message(cluster: str, subject: Subject, head: Head) -> WaitingMessage:
    turn = read_instant(head.headers, h.DUE, head.at)
    return WaitingMessage(turn, names.stream(cluster, subject.lane), head.sequence, subject.lane, subject.group, head)


async def _documents(store: Store, first: list[WaitingMessage], project: str, ttl: float) -> list[dict[str, Any]]:
    """Build the messages' documents, without messages handled meanwhile."""
    shown = []
    for start in range(0, len(first), _BODIES_AT_ONCE):
        part = first[start : start + _BODIES_AT_ONCE]
        bodies = await map_concurrently(part, lambda message: store.get(message.lane, [message.sequence]))
        shown += [
            _document(message, project, stored.body, ttl)
            for message, (stored,) in zip(part, bodies, strict=True)
            if stored is not None
        ]
    return shown


def _document(message: WaitingMessage, project: str, body: bytes, ttl: float) -> dict[str, Any]:
    block, at = message.head.headers, message.head.at
    due = read_instant(block, h.DUE, 0)
    expires = read_instant(block, h.EXPIRES, 0) or (int(ttl * 1e9) + (due or at) if ttl else 0)
    return {
        "sequence": message.sequence,
        "stream": message.stream,
        "id": message_id(project, message.stream, message.sequence, at, block),
        "key": header_values.key(block),
        "group": message.group,
        "attempt": header_values.attempt(block),
        "put_at": _instant(read_instant(block, h.PUT, at)),
        "due_at": _instant(due),
        "expires_at": _instant(expires),
        "size": len(body),
        **_begin(body),
    }


def _instant(ns: int) -> str | None:
    """Format as RFC 3339 with milliseconds. Returns None for 0 and for values out of range."""
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds") if ns else None
    except (OverflowError, ValueError, OSError):
        return None


def _begin(body: bytes) -> dict[str, str]:
    """Return the first bytes of a body: as text, without a character that was cut, otherwise in base64."""
    begin = body[:SHOWN_BYTES]
    cut = range(4) if len(body) > SHOWN_BYTES else (0,)
    for left_out in cut:
        with contextlib.suppress(UnicodeDecodeError):
            return {"body_start": begin[: len(begin) - left_out].decode()}
    return {"body_start_base64": b64encode(begin).decode()}
