"""Replays dead letters: they return to their queues at a controlled rate; each is removed once its message is stored.

The order is put, acknowledgement, removal: whenever a replay ends, each dead letter or its message exists. A dead
letter that was put but not removed is put again by the next replay; within the duplicate window, its message is stored
once. At most `IN_FLIGHT` dead letters are between put and removal.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.dead_letter import NotReplayable, replay
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.errors import BacklogFull, EvenlaneError, NotAcknowledged, TopicDraining, UnknownProject
from evenlane.engine.producer.backlog_limit import BacklogLimiter
from evenlane.engine.producer.no_reply import ReplyTimeouts
from evenlane.engine.producer.pipeline.pending_put import PendingPut
from evenlane.engine.producer.pipeline.window import Window
from evenlane.engine.producer.rate_limit import limiter_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.message.dead_letter import DeadLetter
    from evenlane.engine.core.ports import ClusterLayout, Receipt, Store
    from evenlane.quota.topics.topic import Accepted

IN_FLIGHT = 256
_BYTES = 32 << 20
_ANSWER_S = 5.0  # a later acknowledgement won't come
_LOST_S = (0.05, 0.1, 0.2, 0.4, 0.8)
_RESTORE_EVERY_S = 2.0
_FULL_S = (0.25, 0.5, 1.0, 2.0, 5.0)
_FAREWELL_S = 2.0
_NO_TOPIC = (UnknownProject, TopicDraining)


class FailedReplay(NamedTuple):
    """A dead letter that wasn't replayed, and still exists. `error` is one sentence."""

    seq: int
    id: str
    error: str


class ReplayProgress(NamedTuple):
    """Progress of a replay. `waits` says why it waits, empty if it doesn't."""

    replayed: int
    failed: int
    total: int
    waits: str


@dataclass
class ReplayResult:
    """Result of a replay. `stopped` says why it ended early, empty if it didn't."""

    replayed: int = 0
    failed: list[FailedReplay] = field(default_factory=list)
    stopped: str = ""


class DeadLetterSource(Protocol):
    """Storage of dead letters."""

    async def is_stored(self, sequence: int) -> bool: ...

    async def remove(self, sequence: int) -> None: ...


class ReplayRate:
    """Admits callers one by one, at a given rate per second."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._limiter = limiter_of(1)

    async def turn(self, rate: float) -> None:
        if rate != self._rate:
            self._rate, self._limiter = rate, limiter_of(rate)
        await self._limiter.acquire()


class Replay:
    """One replay. `topic` returns the project's topic, or raises UnknownProject or TopicDraining. `rate` is messages
    per second, the topic's QPS if None; `timeout_s` bounds the tries of one put.

    Invariants: `_window` has room taken for each task in `_running`; `_waiting` has the reason of each dead letter
    whose queue is full. Once `_over` is set, no further dead letter is started.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        source: DeadLetterSource,
        topic: Callable[[], Accepted],
        cluster_config: ClusterLayout,
        *,
        total: int,
        rate: float | None,
        timeout_s: float,
        on_progress: Callable[[ReplayProgress], None] | None,
    ) -> None:
        self._store, self._cluster, self._source, self._topic, self._cluster_config = (
            store,
            cluster,
            source,
            topic,
            cluster_config,
        )
        self._total, self._rate, self._on_progress = total, rate, on_progress
        self._backlog = BacklogLimiter(names.env_of(cluster), store, cluster_config, None)
        self._timeout_s, self._restored_at = timeout_s, 0.0
        self._timeouts = ReplyTimeouts(store)
        self._window = Window(IN_FLIGHT, _BYTES)
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._result = ReplayResult()
        self._waiting: dict[int, str] = {}
        self._defect: BaseException | None = None

    async def run(self, dead_letters: AsyncIterator[DeadLetter]) -> ReplayResult:
        """Replay the dead letters. If cancelled, puts in flight have two seconds to end."""
        try:
            await self._start_all(dead_letters)
            await self._wait_for_puts()
        finally:
            self._over.set()
            if self._running:
                await asyncio.wait(self._running, timeout=_FAREWELL_S)
            for task in self._running:
                task.cancel()
            await self._backlog.close()
        if self._defect is not None:
            raise self._defect
        return self._result

    async def _start_all(self, dead_letters: AsyncIterator[DeadLetter]) -> None:
        pace = ReplayRate()
        try:
            async for dead_letter in dead_letters:
                if not self._check_queue(dead_letter):
                    continue
                await pace.turn(self._rate or self._topic().topic.qps)
                if not self._window.try_acquire(dead_letter):
                    await self._window.wait(dead_letter)
                if self._over.is_set():
                    self._window.release(dead_letter)
                    return
                task = asyncio.create_task(self._carry(dead_letter))
                self._running.add(task)
                task.add_done_callback(self._on_carried)
        except (*_NO_TOPIC, Lost) as error:
            self._stop(str(error))

    def _on_carried(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._defect = self._defect or defect
            self._over.set()

    async def _wait_for_puts(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def _check_queue(self, dead_letter: DeadLetter) -> bool:
        """Return whether the dead letter belongs to a queue; record it as failed if it doesn't. The check comes before
        the dead letter's turn, so that a failed one uses up none of the rate.
        """
        try:
            self._copy(dead_letter)
        except NotReplayable as error:
            self._fail(dead_letter, str(error))
            return False
        return True

    def _copy(self, dead_letter: DeadLetter) -> Copy:
        return replay(dead_letter, self._cluster, self._topic(), self._cluster_config, self._store.now())

    async def _carry(self, dead_letter: DeadLetter) -> None:
        try:
            if await self._put(dead_letter):
                await self._remove(dead_letter)
                self._result.replayed += 1
        except _NO_TOPIC as error:
            self._stop(str(error))
        except (NotAcknowledged, Lost) as error:
            self._fail(dead_letter, str(error))
            self._stop(str(error))
        except (EvenlaneError, Refused) as error:
            self._fail(dead_letter, str(error))
        finally:
            self._waiting.pop(dead_letter.sequence, None)
            self._window.release(dead_letter)
            self._report()

    async def _put(self, dead_letter: DeadLetter) -> bool:
        """Put until the queue has room. Returns False if the replay ends first, or the dead letter is removed."""
        tries = 0
        while True:
            try:
                await self._put_counted(dead_letter)
                return True
            except (BacklogFull, Full) as error:
                self._waiting[dead_letter.sequence] = str(error)
                self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FULL_S[min(tries, len(_FULL_S) - 1)]):
                    await self._over.wait()
                return False
            if not await self._source.is_stored(dead_letter.sequence):
                return False
            tries += 1

    async def _put_counted(self, dead_letter: DeadLetter) -> None:
        """Put within the topic's `max_backlog`, like a producer. It counts what waits for the unnamed subscription, so
        it doesn't limit replays of others. Raises BacklogFull, and what `_store_copy` raises.
        """
        copy, accepted = self._copy(dead_letter), self._topic()
        if accepted.topic.max_backlog is None or names.subscription_of(self._cluster):
            await self._store_copy(copy)
            return
        counted = PendingPut(dead_letter.project, "", False, *copy, accepted)
        await self._backlog.acquire(counted)
        receipt = None
        try:
            receipt = await self._store_copy(copy)
        finally:
            if counted.backlog is not None:
                counted.backlog.note_outcome(copy.subject, receipt, monotonic())

    async def _store_copy(self, copy: Copy) -> Receipt:
        """Put until acknowledged. Raises NotAcknowledged, Refused, Full."""
        loop = asyncio.get_running_loop()
        # a try in flight when the store forgets the id could be stored a second time
        until, tries, why = loop.time() + 0.95 * self._timeout_s, 0, ""
        while (left := until - loop.time()) > 0:
            tries += 1
            try:
                async with asyncio.timeout(min(_ANSWER_S, left)):
                    return await self._store.put(*copy)
            except (Lost, TimeoutError) as error:
                why = str(error) or await self._timeouts.reason(copy.subject, loop.time())
            await asyncio.sleep(min(left, _LOST_S[min(tries, len(_LOST_S)) - 1]))
            if tries > 1:
                await self._restore()
        raise NotAcknowledged(
            f"the message may or may not be stored, {tries} {'try' if tries == 1 else 'tries'} brought no"
            f" acknowledgement ({why}): the dead letter is still there"
        )

    async def _remove(self, dead_letter: DeadLetter) -> None:
        try:
            await self._source.remove(dead_letter.sequence)
        except (Lost, Refused) as error:
            raise Lost(f"its message is back in its queue, but the dead letter can't be removed: {error}") from error

    def _fail(self, dead_letter: DeadLetter, why: str) -> None:
        self._result.failed.append(FailedReplay(dead_letter.sequence, dead_letter.id, why))

    def _stop(self, why: str) -> None:
        self._result.stopped = self._result.stopped or why
        self._over.set()

    def _report(self) -> None:
        if self._on_progress is not None:
            result, waits = self._result, next(iter(self._waiting.values()), "")
            self._on_progress(ReplayProgress(result.replayed, len(result.failed), self._total, waits))

    async def _restore(self) -> None:
        """Restore streams: a store that answers but loses messages may have lost their streams."""
        now = asyncio.get_running_loop().time()
        if not self._store.is_connected or now - self._restored_at < _RESTORE_EVERY_S:
            return
        self._restored_at = now
        with contextlib.suppress(Lost, Refused, EvenlaneError):
            await self._store.prepare([LaneId("lanes", number) for number in range(self._cluster_config.partitions)])
