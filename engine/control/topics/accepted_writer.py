"""The leader's writing: what is accepted and its history, in few transactions, each of them fenced."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.control.topics.history import author_of, entry, entry_put
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.ports import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from evenlane.engine.control.topics.accepted_view import AcceptedView
    from evenlane.engine.control.topics.history import ChangeAuthor
    from evenlane.engine.control.topics.reconcile import TopicChange
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, CreatedAt, KeyValue, Op

_log = structlog.get_logger(__name__)

_MOST_OPS = 100  # in one transaction; etcd takes 128, and as many comparisons: one for each project, and the fence
_MOST_BYTES = 1_000_000  # in one transaction; etcd takes 1.5 MiB
_MOST_READS = 500  # of authors one by one; more are listed
_AT_ONCE = 50  # reads


class AcceptedWriter:
    """For one term of a leader. What is written is compared with the fence, and with what `stands`.

    The fence alone would let a write pass whose answer was lost, and which etcd carries out after a newer one of the
    same leader.
    """

    def __init__(self, coordination: Coordination, env: str, fence: CreatedAt, stands: AcceptedView) -> None:
        self._coordination, self._env, self._fence, self._stands = coordination, env, fence, stands

    async def publish(self, changes: Sequence[TopicChange]) -> bool:
        """Write these changes. False, and not all of them are written, if another process leads or has written under
        `accepted/`. Raises CoordinationError: nobody knows then what is written.
        """
        if not changes:
            return True
        authors = await self._authors(changes)
        at = now()
        writes = (ops(self._env, change, at, authors.get(change.project)) for change in changes)
        for part in batches(writes, _MOST_OPS, _MOST_BYTES):
            if not await self._write(part):
                return False
        return True

    async def repair(self, accepted: Mapping[str, Accepted]) -> bool:
        """Write again what is damaged, as far as it is known what was accepted. False if somebody else leads.

        One that is damaged again at the same moment holds up nothing else: the watch tells of it once more. Raises
        CoordinationError.
        """
        known = {project: accepted[project] for project in self._stands.damaged if project in accepted}
        self._stands.damaged.clear()
        if known:
            _log.warning(
                "what is accepted was damaged, and is written anew", projects=len(known), one=next(iter(known))
            )
        writes: list[list[Op]] = [
            [Put(names.key(self._env, "accepted", project), encode(topic))] for project, topic in known.items()
        ]
        for part in batches(writes, _MOST_OPS, _MOST_BYTES):
            if await self._write(part):
                continue
            if not await self.is_leader():
                return False
            for op in part:
                await self._write([op])
        return True

    async def is_leader(self) -> bool:
        """Whether this process still leads. Raises CoordinationError."""
        leader = await self._coordination.get(self._fence.key)
        return leader is not None and leader.create_revision == self._fence.revision

    async def _write(self, part: Sequence[Op]) -> bool:
        """False, and nothing is written, if the fence or what stands there differs."""
        done = await self._coordination.txn([self._fence, *self._stands.compared(part)], part)
        if done.succeeded:
            self._stands.written(part, done.revision)
        return done.succeeded

    async def _authors(self, changes: Sequence[TopicChange]) -> dict[str, ChangeAuthor]:
        wished = {change.project: change for change in changes if _is_told(change)}
        prefix = names.key(self._env, "authors", "")
        found: list[KeyValue | None] = []
        if len(wished) > _MOST_READS:
            found += (await self._coordination.list(prefix)).items
        else:
            keys = [prefix + project for project in wished]
            for start in range(0, len(keys), _AT_ONCE):
                found += await asyncio.gather(*map(self._coordination.get, keys[start : start + _AT_ONCE]))
        said = {item.key.removeprefix(prefix): item for item in found if item is not None}
        read = {project: _author(said.get(project), change) for project, change in wished.items()}
        return {project: author for project, author in read.items() if author is not None}


def _is_told(change: TopicChange) -> bool:
    """Whether somebody's wish has changed something: a first leader publishes all with their revisions."""
    before, after = change.before, change.after
    return after is not None and (before is None or after.number != before.number)


def _author(found: KeyValue | None, change: TopicChange) -> ChangeAuthor | None:
    """Nobody, if he changed a wish that wasn't judged: part of the change is somebody else's."""
    author = author_of(found, change.revision, 0 if change.before is None else change.before.revision)
    return author if author is not None and author.replaced == change.replaced else None


def ops(env: str, change: TopicChange, at: str, author: ChangeAuthor | None) -> list[Op]:
    """What has to be written together for one change."""
    key = names.key(env, "accepted", change.project)
    written: list[Op] = [Delete(key) if change.after is None else Put(key, encode(change.after))]
    told = entry(change.before, change.after, change.revision, at, author)
    return written if told is None else [*written, entry_put(env, change.project, told)]


def batches(writes: Iterable[list[Op]], most: int, most_bytes: int) -> Iterator[list[Op]]:
    """Parts of at most so many operations, and bytes in them unless those of one change alone are more.

    What is to be written together stays together.
    """
    part: list[Op] = []
    size = 0
    for together in writes:
        length = sum(len(op.value) for op in together if isinstance(op, Put))
        if part and (len(part) + len(together) > most or size + length > most_bytes):
            yield part
            part, size = [], 0
        part = [*part, *together]
        size += length
    if part:
        yield part


def now() -> str:
    """RFC 3339, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
