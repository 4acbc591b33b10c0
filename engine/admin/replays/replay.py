"""Replays messages, dead letters or others: they return to their queues at a controlled rate. A dead letter is removed
once its message is stored.

The order is put, acknowledgement, removal: whenever a replay ends, each dead letter or its message exists. A dead
letter that was put but not removed is put again by the next replay; within the duplicate window, its message is stored
once. At most `IN_FLIGHT` messages are between put and removal.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.replays import NotReplayable, Replayable
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
    from evenlane.engine.core.ports import ClusterLayout, Receipt, Store
    from evenlane.quota.topics.topic import Accepted

T = TypeVar("T", bound=Replayable)
IN_FLIGHT = 256
_BYTES = 32 << 20
_ANSWER_S = 5.0  # a later acknowledgement won't come
_LOST_S = (0.05, 0.1, 0.2, 0.4, 0.8)
_RESTORE_EVERY_S = 2.0
_FULL_S = (0.25, 0.5, 1.0, 2.0, 5.0)
_FAREWELL_S = 2.0
_NO_TOPIC = (UnknownProject, TopicDraining)


class FailedReplay(NamedTuple):
    """A message that wasn't replayed, and still exists. `error` is one sentence."""

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
    """Result of a replay. Of the `replayed` ones, the store had `duplicates` already, from an earlier replay within the
    duplicate window. `stopped` says why it ended early, empty if it didn't.
    """

    replayed: int = 0
    duplicates: int = 0
    failed: list[FailedReplay] = field(default_factory=list)
    stopped: str = ""


class ReplaySource(Protocol):
    """Storage of what is replayed."""

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


class Replay(Generic[T]):
    """One replay. `copy_of(message, topic, now)` makes a message's copy, or raises NotReplayable. `topic` returns the
    project's topic, or raises UnknownProject or TopicDraining. `rate` is messages per second, the topic's QPS if None;
    `timeout_s` bounds the tries of one put, and `in_flight` the messages that are put at once. `what` names a message
    in sentences.

    Invariants: `_window` has room taken for each task in `_running`; `_waiting` has the reason of each message whose
    queue is full, by its identity. Once `_over` is set, no further message is started.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        source: ReplaySource,
        copy_of: Callable[[T, Accepted, int], Copy],
        topic: Callable[[], Accepted],
        cluster_config: ClusterLayout,
        *,
        total: int,
        rate: float | None,
        timeout_s: float,
        on_progress: Callable[[ReplayProgress], None] | None,
        in_flight: int = IN_FLIGHT,
        what: str = "dead letter",
    ) -> None:
        self._store, self._cluster, self._source, self._cluster_config = store, cluster, source, cluster_config
        self._copy_of, self._topic, self._what = copy_of, topic, what
        self._total, self._rate, self._on_progress = total, rate, on_progress
        self._backlog = BacklogLimiter(names.env_of(cluster), store, cluster_config, None)
        self._timeout_s, self._restored_at = timeout_s, 0.0
        self._timeouts = ReplyTimeouts(store)
        self._window = Window(in_flight, _BYTES)
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._result = ReplayResult()
        self._waiting: dict[int, str] = {}
        self._defect: BaseException | None = None

    async def run(self, messages: AsyncIterator[T]) -> ReplayResult:
        """Replay the messages. If cancelled, puts in flight have two seconds to end."""
        try:
            await self._start_all(messages)
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

    async def _start_all(self, messages: AsyncIterator[T]) -> None:
        pace = ReplayRate()
        try:
            async for message in messages:
                if not self._check_queue(message):
                    continue
                await pace.turn(self._rate or self._topic().topic.qps)
                if not self._window.try_acquire(message):
                    await self._window.wait(message)
                if self._over.is_set():
                    self._window.release(message)
                    return
                task = asyncio.create_task(self._carry(message))
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

    def _check_queue(self, message: T) -> bool:
        """Return whether the message belongs to a queue; record it as failed if it doesn't. The check comes before its
        turn, so that a failed one uses up none of the rate.
        """
        try:
            self._copy(message)
        except NotReplayable as error:
            self._fail(message, str(error))
            return False
        return True

    def _copy(self, message: T) -> Copy:
        return self._copy_of(message, self._topic(), self._store.now())

    async def _carry(self, message: T) -> None:
        try:
            if (is_duplicate := await self._put(message)) is not None:
                await self._remove(message)
                self._result.replayed += 1
                self._result.duplicates += is_duplicate
        except _NO_TOPIC as error:
            self._stop(str(error))
        except (NotAcknowledged, Lost) as error:
            self._fail(message, str(error))
            self._stop(str(error))
        except (EvenlaneError, Refused) as error:
            self._fail(message, str(error))
        finally:
            self._waiting.pop(id(message), None)
            self._window.release(message)
            self._report()

    async def _put(self, message: T) -> bool | None:
        """Put until the queue has room. Returns whether the store had the copy already; None if the replay ends first,
        or the message is removed.
        """
        tries = 0
        while True:
            try:
                return await self._put_counted(message)
            except (BacklogFull, Full) as error:
                self._waiting[id(message)] = str(error)
                self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FULL_S[min(tries, len(_FULL_S) - 1)]):
                    await self._over.wait()
                return None
            if not await self._source.is_stored(message.sequence):
                return None
            tries += 1

    async def _put_counted(self, message: T) -> bool:
        """Put within the topic's `max_backlog`, like a producer. It counts what waits for the unnamed subscription, so
        it doesn't limit replays of others. Returns whether the store had the copy already. Raises BacklogFull, and what
        `_store_copy` raises.
        """
        copy, accepted = self._copy(message), self._topic()
        if accepted.topic.max_backlog is None or names.subscription_of(self._cluster):
            return (await self._store_copy(copy))[1]
        counted = PendingPut(message.project, "", False, *copy, accepted)
        await self._backlog.acquire(counted)
        receipt = None
        try:
            receipt, is_duplicate = await self._store_copy(copy)
            return is_duplicate
        finally:
            if counted.backlog is not None:
                counted.backlog.note_outcome(copy.subject, receipt, monotonic())

    async def _store_copy(self, copy: Copy) -> tuple[Receipt, bool]:
        """Put until acknowledged. Returns whether the store had the copy already, too. Raises NotAcknowledged, Refused,
        Full.
        """
        loop = asyncio.get_running_loop()
        # a try in flight when the store forgets the id could be stored a second time
        until, tries, why = loop.time() + 0.95 * self._timeout_s, 0, ""
        while (left := until - loop.time()) > 0:
            tries += 1
            try:
                async with asyncio.timeout(min(_ANSWER_S, left)):
                    receipt = await self._store.put(*copy)
                return receipt, receipt.duplicate and tries == 1  # later ones may be duplicates of the first
            except (Lost, TimeoutError) as error:
                why = str(error) or await self._timeouts.reason(copy.subject, loop.time())
            await asyncio.sleep(min(left, _LOST_S[min(tries, len(_LOST_S)) - 1]))
            if tries > 1:
                await self._restore()
        raise NotAcknowledged(
            f"the message may or may not be stored, {tries} {'try' if tries == 1 else 'tries'} brought no"
            f" acknowledgement ({why}): the {self._what} is still there"
        )

    async def _remove(self, message: T) -> None:
        try:
            await self._source.remove(message.sequence)
        except (Lost, Refused) as error:
            raise Lost(f"its message is back in its queue, but the {self._what} can't be removed: {error}") from error

    def _fail(self, message: T, why: str) -> None:
        self._result.failed.append(FailedReplay(message.sequence, message.id, why))

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
