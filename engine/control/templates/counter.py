"""How many topics a template has made that stand as it made them: its counter in etcd.

The counter is raised in the transaction that makes a topic, if it stands as it was read; so however many processes
make topics at a time, the limit is never exceeded. Topics that were deleted or edited since are still in it: when it
has come to the limit, it is counted anew from who wrote which wish.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from evenlane.engine.base import names
from evenlane.engine.control.topics.history import author_of
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.ring.coordination.ports import Absent, ModifiedAt, Put

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue

_KIND = "templated"


class CreatedTopics(NamedTuple):
    """So many topics, by the counter as it was read."""

    topics: int
    read: KeyValue | None


class _Record(msgspec.Struct, frozen=True):
    made: Annotated[int, msgspec.Meta(ge=0)]


def created_by(name: str) -> str:
    """How a template is named as the author of a wish."""
    return f"template {name}"


class CreatedTopicCounter:
    """Any call may raise CoordinationError."""

    def __init__(self, coordination: Coordination, env: str) -> None:
        self._coordination, self._env = coordination, env

    async def made(self, name: str, limit: int) -> CreatedTopics:
        """As counted at each making; exactly, if that has come to the limit."""
        read = await self._coordination.get(self.key(name))
        count = _count(read)
        if count is None or count >= limit:
            count = await self.counted(name)
        return CreatedTopics(count, read)

    async def counted(self, name: str) -> int:
        """From all wishes: those that the template wrote last."""
        authors, wishes = await asyncio.gather(self._listed("authors"), self._listed("topics"))
        said = (author_of(authors.get(project), wish.mod_revision) for project, wish in wishes.items())
        return sum(author is not None and author.by == created_by(name) for author in said)

    async def _listed(self, kind: str) -> dict[str, KeyValue]:
        prefix = names.key(self._env, kind, "")
        return {item.key.removeprefix(prefix): item for item in (await self._coordination.list(prefix)).items}

    def raised(self, name: str, made: CreatedTopics) -> tuple[Compare, Put]:
        """What is to hold, and what is to be written, with one topic more."""
        key = self.key(name)
        compare = Absent(key) if made.read is None else ModifiedAt(key, made.read.mod_revision)
        return compare, Put(key, msgspec.json.encode(_Record(made.topics + 1)))

    def key(self, name: str) -> str:
        return names.key(self._env, _KIND, name)


def _count(read: KeyValue | None) -> int | None:
    """None for what is no count."""
    if read is None:
        return 0
    try:
        return msgspec.json.decode(read.value, type=_Record).made
    except UNREADABLE:
        return None
