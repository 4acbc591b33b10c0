"""Routes puts: group, partition, subject and headers. Reports all errors of a put before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from random import randrange
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.base import names
from evenlane.engine.core.message import copies
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, InvalidPut, PayloadTooLarge, TopicDraining, UnknownProject
from evenlane.engine.producer.deadlines import HOUR, due_of, expiry_of, format_value
from evenlane.engine.producer.put import PendingPut, Put
from evenlane.ring.hashing import group_of, partition_of

if TYPE_CHECKING:
    from evenlane.engine.core.ports import ClusterLayout, Store
    from evenlane.quota.topics.topic import Accepted


class Topics(Protocol):
    """Accepted topics (`evenlane.engine.cluster.topics.topic_cache.TopicCache`)."""

    def get(self, project: str) -> Accepted | None: ...


class Route:
    """Precomputed values for all puts of a project, valid while its accepted topic is the same object."""

    __slots__ = ("accepted", "active", "subjects", "takes_puts", "turns")

    def __init__(self, accepted: Accepted, turns: count[int]) -> None:
        self.accepted = accepted
        self.active = accepted.active
        self.takes_puts = accepted.can_take_puts
        self.turns = turns  # round robin, for messages without a key
        self.subjects: dict[tuple[int, str], str] = {}  # of its lanes, by (group, priority)


class Router:
    """Routes puts by the formulas of docs/reference/headers-and-subjects.md.

    Invariant: a project is in `_routes` only if it had a topic at its last put.
    """

    def __init__(
        self,
        env: str,
        topics: Topics,
        cluster_config: ClusterLayout,
        store: Store,
        *,
        duplicate_protection: bool = True,
    ) -> None:
        self._env, self._topics, self._cluster_config, self._store = env, topics, cluster_config, store
        self._protected = duplicate_protection
        self._priorities = frozenset(cluster_config.priorities)
        self._middle = cluster_config.priorities[len(cluster_config.priorities) // 2]
        self._routes: dict[str, Route] = {}
        self._ids = f"{token_hex(8)}-"
        self._numbers = 0

    def address(self, put: Put) -> PendingPut:
        """Route a put. Raises InvalidName, InvalidPut, UnknownProject, TopicDraining, PayloadTooLarge; TypeError for a
        body that isn't bytes.
        """
        if not isinstance(put, Put):
            raise TypeError(f"a put needs an evenlane.engine.producer.Put, and this is of type {type(put).__name__}")
        body = put.body if type(put.body) is bytes else _bytes_of(put.body)
        project, fresh, message_id = put.project, put.id is None, ""
        route = self._route(project)
        group = self._group(put, route)
        priority = self._middle if put.priority is None else self._check_priority(put.priority)
        if self._protected:
            self._numbers += 1
            message_id = f"{self._ids}{self._numbers}" if put.id is None else names.check_id(put.id)
        due = expires = 0
        if put.delay is not None or put.due is not None or put.ttl is not None:
            now = self._store.now()
            due = due_of(put, now)
            expires = expiry_of(put, due, now)
        block = _headers(put, message_id, due, expires)
        size, limit = len(block) + len(body), self._store.max_payload
        if size > limit - copies.ROOM and size > limit - copies.room(limit):
            raise PayloadTooLarge(
                f"the message for {project} has {size:,} bytes, {len(body):,} of body and {len(block):,} of "
                f"headers: the server takes at most {limit:,}, of which {copies.room(limit):,} are kept for the "
                "headers of a retry"
            )
        subject = self._subject(route, project, group, priority, due)
        return PendingPut(project, message_id, fresh, subject, block, body, size, route.accepted)

    def _route(self, project: str) -> Route:
        accepted = self._topics.get(project) if isinstance(project, str) else None
        route = self._routes.get(project) if accepted is not None else None
        if route is None or route.accepted is not accepted:
            route = self._new_route(project, accepted, route)
        if not route.takes_puts:
            raise TopicDraining.of(project, self._env, deleted=route.accepted.deleted)
        return route

    def _new_route(self, project: str, accepted: Accepted | None, before: Route | None) -> Route:
        names.check_project(project)
        if accepted is None:
            self._routes.pop(project, None)
            raise UnknownProject.of(project, self._env)
        # A random start in each producer, so that many producers of one message each don't all use group 0.
        turns = count(randrange(accepted.active)) if before is None else before.turns  # noqa: S311
        route = self._routes[project] = Route(accepted, turns)
        return route

    def _group(self, put: Put, route: Route) -> int:
        if put.key is not None:
            names.check_key(put.key)
        if put.group is not None:
            return _check_group(put.project, put.group, route.active)
        if put.key is not None:
            return group_of(put.key, route.active)
        if put.id is not None:  # duplicates must meet in one stream, as each stream knows only its own ids
            return group_of(put.id, route.active)
        return next(route.turns) % route.active

    def _check_priority(self, priority: str) -> str:
        if not isinstance(priority, str) or priority not in self._priorities:
            valid = ", ".join(self._cluster_config.priorities)
            raise InvalidName(f"priority {format_value(priority)} is not one of this cluster's: {valid}")
        return priority

    def _subject(self, route: Route, project: str, group: int, priority: str, due: int) -> str:
        if not due and (known := route.subjects.get((group, priority))) is not None:
            return known
        partition = partition_of(project, group, route.accepted.topic.spread, self._cluster_config.partitions)
        if due:
            return names.later_subject(self._env, partition, project, group, priority, due // HOUR)
        subject = names.lane_subject(self._env, partition, project, group, priority)
        route.subjects[group, priority] = subject
        return subject


def _headers(put: Put, message_id: str, due: int, expires: int) -> bytes:
    lines = [f"{h.ID}: {put.project}:{message_id}\r\n"] if message_id else []
    if put.key is not None:
        lines.append(f"{h.KEY}: {put.key}\r\n")
    if due:
        lines.append(f"{h.DUE}: {due}\r\n")
    if expires:
        lines.append(f"{h.EXPIRES}: {expires}\r\n")
    if put.headers:
        if not isinstance(put.headers, Mapping):
            kind = type(put.headers).__name__
            raise TypeError(f"headers must be a mapping of names to strings, and these are a {kind}")
        h.check_user(put.headers)
        lines += [f"{name}: {text}\r\n" for name, text in put.headers.items()]
    return f"NATS/1.0\r\n{''.join(lines)}\r\n".encode() if lines else b""


def _check_group(project: str, group: int, active: int) -> int:
    if isinstance(group, bool) or not isinstance(group, int) or not 0 <= group < active:
        raise InvalidPut(
            f"group {format_value(group)} of project {project!r} is not one of its groups: 0 to {active - 1}"
        )
    return group


def _bytes_of(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    what = (
        "text: encode it, for example with body.encode()" if isinstance(body, str) else f"of type {type(body).__name__}"
    )
    raise TypeError(f"the body of a message must be bytes, and this one is {what}")
