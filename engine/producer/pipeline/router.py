"""Routes puts: group, partition, subject and headers. Reports all errors of a put before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from random import randrange
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol

from evenlane.engine.base import names
from evenlane.engine.core.message import body_codec, copies
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, InvalidPut, PayloadTooLarge, TopicDraining, UnknownProject
from evenlane.engine.producer.deadlines import HOUR, due_of, expiry_of, format_value
from evenlane.engine.producer.pipeline.pending_put import PendingPut
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import group_of, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.core.ports import ClusterLayout, Store
    from evenlane.quota.topics.topic import Accepted

_NO_LINES = 2  # the first line and the end
_ALWAYS_FITS = 1_024  # bytes that a server takes, with room for the headers of a retry, whatever its limit


class Topics(Protocol):
    """Accepted topics (`evenlane.engine.cluster.topics.topic_cache.TopicCache`)."""

    def get(self, project: str) -> Accepted | None: ...


class Route:
    """Precomputed values for all puts of a project, valid while its accepted topic is the same object."""

    __slots__ = ("accepted", "active", "has_backlog_limit", "subjects", "takes_puts", "turn", "until_id")

    def __init__(self, project: str, accepted: Accepted, turn: int) -> None:
        self.accepted = accepted
        self.active: int = accepted.active
        self.takes_puts: bool = accepted.can_take_puts
        self.has_backlog_limit: bool = accepted.topic.max_backlog is not None
        self.turn = turn  # of the last message without a key: round robin
        self.subjects: dict[tuple[int, str], str] = {}  # of its lanes, by (group, priority)
        self.until_id = f"NATS/1.0\r\n{h.ID}: {project}:"


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
        projects: Collection[str] | None = None,
    ) -> None:
        self._env, self._topics, self._cluster_config, self._store = env, topics, cluster_config, store
        self._protected, self._projects = duplicate_protection, projects
        self._priorities = frozenset(cluster_config.priorities)
        self._middle = cluster_config.priorities[len(cluster_config.priorities) // 2]
        self._routes: dict[str, Route] = {}
        self._ids = f"{token_hex(8)}-"
        self._numbers = 0

    def address(self, put: Put) -> PendingPut:
        """Route a put, and encode its body. Raises InvalidName, InvalidPut, UnknownProject, TopicDraining,
        PayloadTooLarge; TypeError for a body of another type.
        """
        if not isinstance(put, Put):
            raise TypeError(f"a put needs an evenlane.Put, and this is of type {type(put).__name__}")
        given: Any = put  # a caller may have given anything: a compiled field of the declared type would refuse it
        body: bytes
        if isinstance(given.body, bytes):
            body, user_headers = given.body, given.headers
        else:
            body, user_headers = body_codec.encode(given.body, _mapping(given.headers))
        route = self._route(given.project)
        project, priority, message_id = put.project, given.priority, ""
        own_id = None if given.id is None else names.check_id(given.id)
        group = self._group(given, route, own_id)
        priority = self._middle if priority is None else self._check_priority(priority)
        if self._protected:
            self._numbers += 1
            message_id = f"{self._ids}{self._numbers}" if own_id is None else own_id
        due = expires = 0
        if given.delay is not None or given.due is not None or given.ttl is not None:
            now = self._store.now()
            due = due_of(put, now)
            expires = expiry_of(put, due, now)
        block = _headers(given, user_headers, route, message_id, due, expires)
        if len(block) + len(body) > _ALWAYS_FITS:
            self._check_size(project, len(block), len(body))
        subject = self._subject(route, project, group, priority, due)
        pending = PendingPut(project, message_id, own_id is None, subject, block, body, route.accepted)
        pending.has_backlog_limit = route.has_backlog_limit
        return pending

    def home_partition(self, project: str) -> int:
        """Return the partition of a project's first group. Raises InvalidName."""
        cluster = self._cluster_config
        return partition_of(names.check_project(project), 0, 1, cluster.partitions, cluster.layout)

    def _check_size(self, project: str, headers: int, body: int) -> None:
        size, limit = headers + body, self._store.max_payload
        if size > limit - copies.ROOM and size > limit - copies.room(limit):
            raise PayloadTooLarge(
                f"the message for {project} has {size:,} bytes, {body:,} of body and {headers:,} of headers: the "
                f"server takes at most {limit:,}, of which {copies.room(limit):,} are kept for the headers of a retry"
            )

    def _route(self, project: Any) -> Route:
        accepted = self._topics.get(project) if isinstance(project, str) else None
        route = self._routes.get(project) if accepted is not None else None
        if route is None or route.accepted is not accepted:
            route = self._new_route(project, accepted, route)
        if not route.takes_puts:
            raise TopicDraining.of(project, self._env, deleted=route.accepted.deleted)
        return route

    def _new_route(self, project: Any, accepted: Accepted | None, before: Route | None) -> Route:
        names.check_project(project)
        if self._projects is not None and project not in self._projects:
            raise InvalidPut(
                f"project {project!r} is not one of this producer's (setting projects): {', '.join(self._projects)}"
            )
        if accepted is None:
            self._routes.pop(project, None)
            raise UnknownProject.of(project, self._env)
        # A random start in each producer, so that many producers of one message each don't all use group 0.
        turn = randrange(accepted.active) if before is None else before.turn  # noqa: S311
        route = self._routes[project] = Route(project, accepted, turn)
        return route

    def _group(self, put: Any, route: Route, message_id: Any) -> int:
        key, group = put.key, put.group
        if key is not None:
            names.check_key(key)
        if group is not None:
            if key is not None and message_id is None:
                raise InvalidPut(
                    f"the put for {put.project!r} names both a key and a group: give one of them, as the key decides"
                    " the group (only a second try under its `id` may name both)"
                )
            return _check_group(put.project, group, route.active)
        if key is not None:
            return group_of(key, route.active)
        if message_id is not None:  # duplicates must meet in one stream, as each stream knows only its own ids
            return group_of(message_id, route.active)
        route.turn += 1
        return route.turn % route.active

    def _check_priority(self, priority: Any) -> str:
        if not isinstance(priority, str) or priority not in self._priorities:
            valid = ", ".join(self._cluster_config.priorities)
            raise InvalidName(f"priority {format_value(priority)} is not one of this cluster's: {valid}")
        return priority

    def _subject(self, route: Route, project: str, group: int, priority: str, due: int) -> str:
        if not due and (known := route.subjects.get((group, priority))) is not None:
            return known
        cluster = self._cluster_config
        partition = partition_of(project, group, route.accepted.topic.spread, cluster.partitions, cluster.layout)
        if due:
            return names.later_subject(self._env, partition, project, group, priority, due // HOUR)
        subject = names.lane_subject(self._env, partition, project, group, priority)
        route.subjects[group, priority] = subject
        return subject


def _headers(put: Any, user_headers: Any, route: Route, message_id: str, due: int, expires: int) -> bytes:
    lines = [route.until_id, message_id, "\r\n"] if message_id else ["NATS/1.0\r\n"]
    if put.key is not None:
        lines.append(f"{h.KEY}: {put.key}\r\n")
    if due:
        lines.append(f"{h.DUE}: {due}\r\n")
    if expires:
        lines.append(f"{h.EXPIRES}: {expires}\r\n")
    if user_headers:
        h.check_user(_mapping(user_headers))
        lines += [f"{name}: {text}\r\n" for name, text in user_headers.items()]
    lines.append("\r\n")
    return "".join(lines).encode() if len(lines) > _NO_LINES else b""


def _check_group(project: str, group: Any, active: int) -> int:
    if isinstance(group, bool) or not isinstance(group, int) or not 0 <= group < active:
        raise InvalidPut(
            f"group {format_value(group)} of project {project!r} is not one of its groups: 0 to {active - 1}"
        )
    return group


def _mapping(headers: Any) -> Any:
    if headers is not None and not isinstance(headers, Mapping):
        kind = type(headers).__name__
        raise TypeError(f"headers must be a mapping of names to strings, and these are a {kind}")
    return headers
