"""Routes messages to handlers: by project, and by kind, which is a header that the producer sets. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from evenlane.engine.base.project_patterns import ALL, matches
from evenlane.engine.core.queue.queue_rules import Handling
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler, name_of
from evenlane.ring.hashing import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from evenlane.engine.core.message.message import Message

KIND_HEADER = "kind"
_LONGEST_PROJECT = 64
_LONGEST_PATTERN = 2 * _LONGEST_PROJECT + 1  # between any two characters, one *
_PATTERN = re.compile(r"(?:[A-Za-z0-9]|\*)[A-Za-z0-9_*-]*")
_SECOND = 1_000_000_000
_MOST_CACHED = 65_536  # projects
_LONGEST_TEXT = 400  # characters of a table as text


@dataclass(frozen=True)
class Route:
    """A handler for the projects that match `pattern`, in which `*` stands for any characters; only for messages of
    `kind`, if it is given.
    """

    pattern: str
    handler: Handler
    kind: str | None = None

    def __str__(self) -> str:
        kind = "" if self.kind is None else f" kind={self.kind}"
        batch = "" if not self.handler.batch else f" batch={self.handler.batch}"
        wait = "" if not self.handler.batch_wait else f" wait={self.handler.batch_wait:g}"
        return f"{self.pattern}{kind}{batch}{wait} -> {self.handler.name}"

    @property
    def closeness(self) -> int:
        """How closely the pattern names a project: an exact name before the longest literal prefix."""
        return _LONGEST_PROJECT + 1 if ALL not in self.pattern else self.pattern.index(ALL)

    def matches(self, project: str) -> bool:
        return matches(self.pattern, project)


class ProjectHandlers:
    """The handlers of one project: by kind, and `default` for messages of all other kinds, None if there is none."""

    def __init__(self, default: Handler | None, kinds: Mapping[str, Handler], kind_header: str) -> None:
        self._default, self._kinds, self._header = default, kinds, kind_header

    def of(self, message: Message) -> Handler | None:
        """The handler of a message; None if it has none, and so must wait."""
        if self._kinds and (kind := h.value(message.raw_headers, self._header)) is not None:
            return self._kinds.get(kind, self._default)
        return self._default

    @property
    def handling(self) -> Handling:
        default = self._default
        if self._kinds:
            kinds = frozenset(self._kinds) if default is None else None
            return Handling(self, kind_header=self._header, kinds=kinds)
        assert default is not None
        is_plain = default.is_async and not default.batch
        return Handling(self, default.call if is_plain else None, default.batch or 1, int(default.batch_wait * _SECOND))


class RouteTable:
    """Chooses the handlers of each project. A handler that names a message's kind goes before one that names none; of
    several, the one whose pattern is closest.

    Raises ConfigError for a pattern that no project can match, for two routes that are equally close to a project, and
    for a handler of batches where messages of one queue have several handlers.
    """

    def __init__(self, routes: Iterable[Route], kind_header: str = KIND_HEADER) -> None:
        self._routes, self._header = sorted(routes, key=lambda route: -route.closeness), kind_header
        for route in self._routes:
            _check_route(route)
        for first, second in combinations(self._routes, 2):
            _check_pair(first, second)
        self.find: Callable[[str], Handling | None] = lru_cache(maxsize=_MOST_CACHED)(self._find)
        """How messages of a project are handled; None if there is no handler for any of them."""

    @classmethod
    def of(cls, call: Callable[[Any], Any]) -> RouteTable:
        """All messages go to one handler. Raises ConfigError."""
        return cls([Route(ALL, Handler.of(call))])

    def traced(self, trace: Callable[..., Callable[[Any], Any]]) -> RouteTable:
        """The same routes, with each handler in spans: see `Handler.traced`."""
        return RouteTable([replace(route, handler=route.handler.traced(trace)) for route in self._routes], self._header)

    @property
    def has_batches(self) -> bool:
        """Whether any handler takes several messages at once."""
        return any(route.handler.batch for route in self._routes)

    @property
    def name(self) -> str:
        """The names of the handlers."""
        return ", ".join(dict.fromkeys(route.handler.name for route in self._routes))

    @property
    def fingerprint(self) -> str:
        """The routes as text of bounded length. Nodes whose texts are equal handle messages alike."""
        text = "; ".join(sorted(map(str, self._routes)))
        if self._header != KIND_HEADER and any(route.kind is not None for route in self._routes):
            text = f"kinds by {self._header}; {text}"
        if len(text) <= _LONGEST_TEXT:
            return text
        return f"{text[:_LONGEST_TEXT]}... ({len(self._routes)} routes, {digest(text):064x})"

    def _find(self, project: str) -> Handling | None:
        matching = [route for route in self._routes if route.matches(project)]  # the closest first
        kinds = {route.kind: route.handler for route in reversed(matching) if route.kind is not None}
        default = next((route.handler for route in matching if route.kind is None), None)
        if default is None and not kinds:
            return None
        return ProjectHandlers(default, kinds, self._header).handling


def _check_route(route: Route) -> None:
    pattern, name = route.pattern, name_of(route.handler.call)
    is_too_long = len(pattern) > _LONGEST_PATTERN or len(pattern.replace(ALL, "")) > _LONGEST_PROJECT
    if is_too_long or not _PATTERN.fullmatch(pattern):
        raise ConfigError(
            f"no project can match the pattern {pattern!r} of the handler {name}: a project has 1 to 64 letters,"
            " digits, '_' or '-', the first a letter or digit, and * stands for any of them"
        )
    if route.kind is not None and route.handler.batch:
        raise ConfigError(
            f"the handler {name} takes batches and names the kind {route.kind!r}: a batch has all kinds of a queue's"
            " messages, so name projects only"
        )


def _check_pair(first: Route, second: Route) -> None:
    """Check two routes, of which `first` is at least as close as `second`."""
    if not _overlap(first.pattern, second.pattern):
        return
    names_ = f"{name_of(first.handler.call)} ({_shown(first)}) and {name_of(second.handler.call)} ({_shown(second)})"
    if first.kind == second.kind and first.closeness == second.closeness:
        raise ConfigError(f"the handlers {names_} are equally close to some projects: a message needs one handler")
    by_batch = next((route for route in (first, second) if route.handler.batch), None)
    if by_batch is not None and first.kind != second.kind:
        raise ConfigError(
            f"the handlers {names_} share projects, and {name_of(by_batch.handler.call)} takes batches: a batch has all"
            " kinds of a queue's messages, so name other projects"
        )


def _shown(route: Route) -> str:
    return repr(route.pattern) if route.kind is None else f"{route.pattern!r}, kind {route.kind!r}"


def _overlap(one: str, other: str) -> bool:
    """Whether some text matches both patterns."""
    # `row[j]`: whether some text matches both `one[:i]` and `other[:j]`
    row = [other[:j].strip(ALL) == "" for j in range(len(other) + 1)]
    for char in one:
        above, row = row, [row[0] and char == ALL]
        for j, opposite in enumerate(other):
            if ALL in (char, opposite):
                row.append(above[j + 1] or row[j])
            else:
                row.append(above[j] and char == opposite)
    return row[-1]
