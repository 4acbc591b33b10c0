"""Writes accepted topics and their history, in few transactions, each of them fenced."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.control.topics.history import author_of, entry, entry_put
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.ports import DeleteKey, PutKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from evenlane.engine.control.topics.accepted_view import AcceptedView
    from evenlane.engine.control.topics.history import ChangeAuthor
    from evenlane.engine.control.topics.reconcile import TopicChange
    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.coordination.ports import Coordination, CreatedAt, KeyValue, Op

_log = structlog.get_logger(__name__)

_MOST_OPS = 100  # per transaction; etcd takes 128, and as many comparisons: one per project, and the fence
_MOST_BYTES = 1_000_000  # per transaction; etcd takes 1.5 MiB
_MOST_READS = 500  # read one by one; more authors are listed
_AT_ONCE = 50  # concurrent reads


class AcceptedWriter:
    """Writes for one term of a leader. Each write is conditional on the fence and on the revisions in the view.

    The fence alone isn't sufficient: it would admit a write whose answer was lost and that etcd carries out after a
    newer one of the same leader.
    """

    def __init__(self, coordination: Coordination, env: str, fence: CreatedAt, view: AcceptedView) -> None:
        self._coordination, self._env, self._fence, self._view = coordination, env, fence, view

    async def publish(self, changes: Sequence[TopicChange]) -> bool:
        """Write these changes. Returns False, with only part of them written, if another process leads or has written
        under `accepted/`. Raises CoordinationError, after which it is unknown what was written.
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
        """Rewrite corrupted values whose accepted topic is known. Returns False if another process leads.

        A value that is corrupted again meanwhile doesn't block the others: the watch reports it again. Raises
        CoordinationError.
        """
        known = {project: accepted[project] for project in self._view.corrupted if project in accepted}
        self._view.corrupted.clear()
        if known:
            _log.warning(
                "what is accepted was damaged, and is written anew", projects=len(known), one=next(iter(known))
            )
        writes: list[list[Op]] = [
            [PutKey(names.key(self._env, "accepted", project), encode(topic))] for project, topic in known.items()
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
        """Write in one transaction. Returns False, with nothing written, if the fence or a revision differs."""
        done = await self._coordination.txn([self._fence, *self._view.build_compares(part)], part)
        if done.succeeded:
            self._view.note_written(part, done.revision)
        return done.succeeded

    async def _authors(self, changes: Sequence[TopicChange]) -> dict[str, ChangeAuthor]:
        authored = {change.project: change for change in changes if _has_entry(change)}
        prefix = names.key(self._env, "authors", "")
        found: list[KeyValue | None] = []
        if len(authored) > _MOST_READS:
            found += (await self._coordination.list(prefix)).items
        else:
            keys = [prefix + project for project in authored]
            for start in range(0, len(keys), _AT_ONCE):
                found += await asyncio.gather(*map(self._coordination.get, keys[start : start + _AT_ONCE]))
        authors = {item.key.removeprefix(prefix): item for item in found if item is not None}
        read = {project: _author(authors.get(project), change) for project, change in authored.items()}
        return {project: author for project, author in read.items() if author is not None}


def _has_entry(change: TopicChange) -> bool:
    """Whether a change of a spec caused this change. A first leader publishes all topics with their revisions."""
    before, after = change.before, change.after
    return after is not None and (before is None or after.number != before.number)


def _author(found: KeyValue | None, change: TopicChange) -> ChangeAuthor | None:
    """Return the author, None if it changed a spec that was never reconciled: part of the change is then
    another author's.
    """
    author = author_of(found, change.revision, 0 if change.before is None else change.before.revision)
    return author if author is not None and author.replaced == change.replaced else None


def ops(env: str, change: TopicChange, at: str, author: ChangeAuthor | None) -> list[Op]:
    """Return the operations of one change, which must be in one transaction."""
    key = names.key(env, "accepted", change.project)
    written: list[Op] = [DeleteKey(key) if change.after is None else PutKey(key, encode(change.after))]
    new_entry = entry(change.before, change.after, change.revision, at, author)
    return written if new_entry is None else [*written, entry_put(env, change.project, new_entry)]


def batches(writes: Iterable[list[Op]], most: int, most_bytes: int) -> Iterator[list[Op]]:
    """Group operations into batches of at most `most` operations and `most_bytes` bytes. A single change may exceed
    either.

    Operations of one change stay together.
    """
    part: list[Op] = []
    size = 0
    for together in writes:
        length = sum(len(op.value) for op in together if isinstance(op, PutKey))
        if part and (len(part) + len(together) > most or size + length > most_bytes):
            yield part
            part, size = [], 0
        part = [*part, *together]
        size += length
    if part:
        yield part


def now() -> str:
    """Return the time in RFC 3339, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
