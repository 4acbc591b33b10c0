"""Counts the topics that a template has created and that are unchanged since, in a counter in etcd.

The transaction that creates a topic also raises the counter, if it is as it was read. So the limit holds however many
processes create topics at a time. Topics that were deleted or edited since are still counted. When the counter has
reached the limit, the topics are therefore recounted from the authors of all specs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.control.topics.history import author_of
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.ring.coordination.ports import Absent, ModifiedAt, PutKey

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue

_KIND = "templated"


class CreatedTopics(NamedTuple):
    """The number of created topics, and the counter as it was read."""

    topics: int
    read: KeyValue | None


class _Record(msgspec.Struct, frozen=True):
    made: Annotated[int, msgspec.Meta(ge=0)]


def format_author(name: str) -> str:
    """Return the author name of specs that a template has written."""
    return f"template {name}"


class CreatedTopicCounter:
    """Reads and raises counters. Each call may raise CoordinationError."""

    def __init__(self, coordination: Coordination, env: str) -> None:
        self._coordination, self._env = coordination, env

    async def read_count(self, name: str, limit: int) -> CreatedTopics:
        """Return the counter's value; recounted, and thus exact, if it has reached the limit."""
        read = await self._coordination.get(self.key(name))
        count = _count(read)
        if count is None or count >= limit:
            count = await self.recount(name)
        return CreatedTopics(count, read)

    async def recount(self, name: str) -> int:
        """Count the specs whose last author is the template."""
        authors, specs = await asyncio.gather(self._list("authors"), self._list("topics"))
        authors_by_spec = (author_of(authors.get(project), spec.mod_revision) for project, spec in specs.items())
        return sum(author is not None and author.by == format_author(name) for author in authors_by_spec)

    async def _list(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._env, kind, "")
        return {item.key.removeprefix(prefix): item for item in (await self._coordination.list(prefix)).items}

    def build_increment(self, name: str, made: CreatedTopics) -> tuple[Compare, PutKey]:
        """Return the condition and the put that raise the counter by one topic."""
        key = self.key(name)
        compare = Absent(key) if made.read is None else ModifiedAt(key, made.read.mod_revision)
        return compare, PutKey(key, msgspec.json.encode(_Record(made.topics + 1)))

    def key(self, name: str) -> str:
        return names.key(self._env, _KIND, name)


def _count(read: KeyValue | None) -> int | None:
    """Return the counter's value, None if it is invalid."""
    if read is None:
        return 0
    try:
        return msgspec.json.decode(read.value, type=_Record).made
    except UNREADABLE:
        return None
