"""Client for dead letters: `DeadLetterClient` lists, shows, replays and drops them, in bounded memory.

Requests are retried until NATS answers, unless it is silent for longer than `timeout_s`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from evenlane.engine.admin.dead_letters.by_error import ALL, Selection
from evenlane.engine.admin.dead_letters.head_scan import HeadScan, in_parts
from evenlane.engine.admin.replays.connect import connect
from evenlane.engine.admin.replays.replay import Replay
from evenlane.engine.base import names
from evenlane.engine.base.durations import format_duration
from evenlane.engine.core.message import copies
from evenlane.engine.core.message.dead_letter import DeadLetter, read, read_head, replay
from evenlane.engine.core.ports import Lost
from evenlane.engine.errors import EvenlaneError, TopicDraining, UnknownProject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from evenlane.engine.admin.dead_letters.by_error import ErrorTally
    from evenlane.engine.admin.replays.replay import ReplayProgress, ReplayResult
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.ports import ClusterLayout, Head, Store, Stored
    from evenlane.engine.producer.pipeline.router import Topics
    from evenlane.quota.topics.topic import Accepted

T = TypeVar("T")

_SCANNED_AT_ONCE = 10_000  # sequences
_READ_AT_ONCE = 256  # dead letters,
_READ_BYTES = 32 << 20  # and bytes, if each were as large as a message may be: the server cuts a connection at 64 MB
_DROPPED_AT_ONCE = 256
MOST_GROUPED = 20_000  # dead letters: two seconds of work
_AGAIN_S = 0.2


class NoSuchDeadLetter(EvenlaneError):
    """The project has no such dead letter, or no longer."""


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[DeadLetterClient]:
    """Connect as configured. Raises Unreachable, ConfigError; EvenlaneError if there is no such environment."""
    async with connect(settings, "evenlane dlq") as (store, topics, cluster_config, _subscription):
        yield DeadLetterClient(store, settings.cluster, topics, cluster_config, timeout_s=settings.duplicate_window)


class DeadLetterClient:
    """Client for the dead letters of one cluster. `timeout_s` limits NATS' silence and the tries of one replayed
    message; it is the store's duplicate window. Each call may raise Lost. The project `_stray` has messages that
    belonged to no queue.
    """

    def __init__(
        self, store: Store, cluster: str, topics: Topics, cluster_config: ClusterLayout, *, timeout_s: float = 30.0
    ) -> None:
        self._store, self._cluster, self._topics, self._cluster_config = store, cluster, topics, cluster_config
        self._env = names.env_of(cluster)
        self._timeout_s = timeout_s

    async def count(self, project: str) -> int:
        """Count dead letters. Raises UnknownProject if the project has neither a topic nor dead letters."""
        found = (await self._patiently(lambda: self._store.counts(names.DEAD))).get(self._subject(project), 0)
        if not found and project != copies.UNROUTABLE_PROJECT and self._topics.get(project) is None:
            raise UnknownProject(
                f"project {project!r} has neither a topic nor dead letters in environment {self._env!r}"
            )
        return found

    async def oldest(self, project: str, limit: int, error: str | None = None) -> list[DeadLetter]:
        """Return the oldest dead letters, at most `limit`, without bodies. With `error`, the key of an error, those of
        the oldest `MOST_GROUPED` that have it.
        """
        found: list[DeadLetter] = []
        subject = self._subject(project)
        if error is not None:
            scan = HeadScan(self._heads, subject, self._cluster, await self.last())
            return await scan.find(Selection(error), limit, MOST_GROUPED)
        while len(found) < limit:
            start, most = found[-1].sequence + 1 if found else 1, min(_SCANNED_AT_ONCE, limit - len(found))
            heads = await self._heads(subject, start, most)
            found += [read_head(head, subject, self._cluster) for head in heads]
            if len(heads) < most:
                break
        return found

    async def by_error(self, project: str, most: int = MOST_GROUPED) -> ErrorTally:
        """Group the oldest dead letters, at most `most`, by their errors."""
        return await HeadScan(self._heads, self._subject(project), self._cluster, await self.last()).tally(most)

    async def get(self, project: str, sequence: int) -> DeadLetter:
        """Return one dead letter. Raises NoSuchDeadLetter, UnknownProject."""
        [stored] = await self._read([sequence])
        if stored is not None and stored.subject == self._subject(project):
            return read(stored, self._cluster)
        await self.count(project)
        if stored is not None:
            raise NoSuchDeadLetter(
                f"dead letter {sequence} does not belong to {project} but to {stored.subject.rpartition('.')[2]}"
            )
        last = await self.last()
        if sequence > last:
            newest = f"the newest is {last}" if last else "there have been none yet"
            raise NoSuchDeadLetter(f"there is no dead letter {sequence} in environment {self._env!r}: {newest}")
        raise NoSuchDeadLetter(
            f"dead letter {sequence} no longer exists: it was replayed or dropped, or its time{await self._time()}"
            " ran out"
        )

    async def drop(
        self,
        project: str,
        sequence: int | None = None,
        *,
        selection: Selection = ALL,
        on_progress: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> int:
        """Remove one dead letter, or all present ones of the selection; return their number. `on_progress` is called
        with the number removed and the total. Raises NoSuchDeadLetter, UnknownProject.
        """
        if sequence is not None:
            await self.get(project, sequence)
            await self.remove(sequence)
            return 1
        total, found = await self._select(project, selection)
        dropped = 0
        async for sequences in found:
            for start in range(0, len(sequences), _DROPPED_AT_ONCE):
                part = sequences[start : start + _DROPPED_AT_ONCE]
                await asyncio.gather(*map(self.remove, part))
                dropped += len(part)
                on_progress(dropped, max(dropped, total))
        return dropped

    async def replay(
        self,
        project: str,
        sequence: int | None = None,
        *,
        selection: Selection = ALL,
        rate: float | None = None,
        on_progress: Callable[[ReplayProgress], None] | None = None,
    ) -> ReplayResult:
        """Put one dead letter, or all present ones of the selection, into their queues again: see
        `evenlane.engine.admin.replays.replay`.

        `rate` is messages per second, by default the topic's QPS; `on_progress` is called with the progress now and
        then. Raises NoSuchDeadLetter, UnknownProject, TopicDraining.
        """
        if sequence is not None:
            dead_letters, total = _one(await self.get(project, sequence)), 1
            self._find_open_topic(project)
        else:
            total, found = await self._select(project, selection)
            topic = self._find_open_topic(project).topic
            # At most one second's worth: dead letters that were read but not yet replayed may be dropped meanwhile.
            ahead = max(1, int(topic.qps if rate is None else rate))
            dead_letters = self._all(found, min(self._at_once(), ahead))
        run = Replay(
            self._store, self._cluster, self, self._copy, lambda: self._find_open_topic(project),
            self._cluster_config, total=total,
            rate=rate, timeout_s=self._timeout_s, on_progress=on_progress,
        )  # fmt: skip
        return await run.run(dead_letters)

    async def is_stored(self, sequence: int) -> bool:
        [stored] = await self._read([sequence])
        return stored is not None

    async def remove(self, sequence: int) -> None:
        await self._patiently(lambda: self._store.delete(names.DEAD, sequence))

    async def kept(self) -> float:
        """Return how long dead letters are kept, in s; 0: forever."""
        return await self._patiently(self._store.dead_letters_kept)

    async def keep(self, seconds: float) -> None:
        """Set how long dead letters are kept. Raises Refused for less than the duplicate window."""
        await self._patiently(lambda: self._store.keep_dead_letters(seconds))

    # ---- internal

    def _copy(self, dead_letter: DeadLetter, topic: Accepted, now: int) -> Copy:
        return replay(dead_letter, self._cluster, topic, self._cluster_config, now)

    def _subject(self, project: str) -> str:
        return names.dead_subject(self._cluster, project)

    def _find_open_topic(self, project: str) -> Accepted:
        """Return the project's topic. Raises UnknownProject, TopicDraining."""
        accepted = self._topics.get(project)
        stay = ", so its dead letters stay where they are"
        if accepted is None:
            raise UnknownProject.of(project, self._env, stay)
        if not accepted.can_take_puts:
            raise TopicDraining.of(project, self._env, stay, deleted=accepted.deleted)
        return accepted

    async def _some(self, project: str) -> int:
        count = await self.count(project)
        if not count:
            raise NoSuchDeadLetter(f"project {project!r} has no dead letters in environment {self._env!r}")
        return count

    async def last(self) -> int:
        """Return the sequence of the newest dead letter of all projects; 0 if there have been none."""
        return (await self._patiently(lambda: self._store.state(names.DEAD))).last

    async def _time(self) -> str:
        kept = await self.kept()
        return f" ({format_duration(kept)})" if kept else ""

    def _at_once(self) -> int:
        return max(1, min(_READ_AT_ONCE, _READ_BYTES // self._store.max_payload))

    async def _all(self, found: AsyncIterator[Sequence[int]], at_once: int) -> AsyncIterator[DeadLetter]:
        """Yield those of the dead letters that still exist when they are read."""
        async for sequences in found:
            for start in range(0, len(sequences), at_once):
                for stored in await self._read(sequences[start : start + at_once]):
                    if stored is not None:
                        yield read(stored, self._cluster)

    async def _read(self, sequences: Sequence[int]) -> list[Stored | None]:
        return await self._patiently(lambda: self._store.get(names.DEAD, sequences))

    async def _select(self, project: str, selection: Selection) -> tuple[int, AsyncIterator[Sequence[int]]]:
        """Return the number and the sequences of the selected dead letters, oldest first. Later ones aren't among
        them. Raises NoSuchDeadLetter, UnknownProject.
        """
        total, last = await self._some(project), await self.last()
        if selection is ALL:
            return total, self._sequences(project, last)
        until = last if selection.until is None else min(last, selection.until)
        chosen = await HeadScan(self._heads, self._subject(project), self._cluster, until).select(selection)
        if not chosen:
            error = "" if selection.error is None else f" with the error {selection.error!r}"
            raise NoSuchDeadLetter(
                f"project {project!r} has no dead letters{error} up to {until} any more in environment {self._env!r}"
            )
        return len(chosen), in_parts(chosen)

    async def _sequences(self, project: str, last: int) -> AsyncIterator[list[int]]:
        start = 1
        while start <= last:
            found = await self._scan(project, start)
            if not found:
                return
            yield [sequence for sequence in found if sequence <= last]
            start = found[-1] + 1

    async def _heads(self, subject: str, start: int, limit: int) -> list[Head]:
        return await self._patiently(lambda: self._store.heads(names.DEAD, subject, start, limit))

    async def _scan(self, project: str, start: int) -> list[int]:
        subject = self._subject(project)
        return await self._patiently(lambda: self._store.scan(names.DEAD, subject, start, _SCANNED_AT_ONCE))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry a request until it is answered. All requests here may safely be repeated."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_s
        while True:
            try:
                return await ask()
            except Lost:
                if loop.time() >= until:
                    raise
            await asyncio.sleep(_AGAIN_S)


async def _one(dead_letter: DeadLetter) -> AsyncIterator[DeadLetter]:
    yield dead_letter
