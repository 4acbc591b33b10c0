"""A replay: dead letters go back to their queues in a controlled stream, each removed once its message is stored.

Put, acknowledged, removed, in this order: whenever it ends, a letter is still there or its message is. What was put
and not yet removed then is put again by the next replay; within the duplicate window it is stored once. At most
`IN_FLIGHT` letters are between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.dead_letter import NotReplayable, replay
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.errors import BacklogFull, EvenlaneError, NotAcknowledged, TopicDraining, UnknownProject
from evenlane.engine.producer.backlog_limit import BacklogLimiter
from evenlane.engine.producer.no_reply import ReplyTimeouts
from evenlane.engine.producer.put import PendingPut
from evenlane.engine.producer.rate_limit import limiter_of
from evenlane.engine.producer.window import Window

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evenlane.engine.core.message.copies import Copy
    from evenlane.engine.core.message.dead_letter import DeadLetter
    from evenlane.engine.core.ports import ClusterFacts, Receipt, Store
    from evenlane.quota.topics.topic import Accepted

IN_FLIGHT = 256
_BYTES = 32 << 20
_ANSWER_S = 5.0  # an acknowledgement that takes longer won't come
_LOST_S = (0.05, 0.1, 0.2, 0.4, 0.8)
_RESTORE_EVERY_S = 2.0
_FULL_S = (0.25, 0.5, 1.0, 2.0, 5.0)
_FAREWELL_S = 2.0
_NO_TOPIC = (UnknownProject, TopicDraining)


class Failed(NamedTuple):
    """`error` is one sentence; the letter is still there."""

    seq: int
    id: str
    error: str


class Progress(NamedTuple):
    """`waits` says for what, or is empty."""

    replayed: int
    failed: int
    total: int
    waits: str


@dataclass
class Replayed:
    """`stopped` says why the rest was left where it is, or is empty."""

    replayed: int = 0
    failed: list[Failed] = field(default_factory=list)
    stopped: str = ""


class DeadLetterSource(Protocol):
    """Where the letters lie."""

    async def there(self, sequence: int) -> bool: ...

    async def remove(self, sequence: int) -> None: ...


class ReplayRate:
    """Lets one through after the other, so many a second."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._limiter = limiter_of(1)

    async def turn(self, rate: float) -> None:
        if rate != self._rate:
            self._rate, self._limiter = rate, limiter_of(rate)
        await self._limiter.acquire()


class Replay:
    """`topic` gives the project's, or raises UnknownProject or TopicDraining. `rate` is messages a second, the topic's
    QPS if None; `timeout_s` bounds the tries of one put.
    """

    def __init__(
        self,
        store: Store,
        env: str,
        shelf: DeadLetterSource,
        topic: Callable[[], Accepted],
        facts: ClusterFacts,
        *,
        total: int,
        rate: float | None,
        timeout_s: float,
        tell: Callable[[Progress], None] | None,
    ) -> None:
        self._store, self._env, self._shelf, self._topic, self._facts = store, env, shelf, topic, facts
        self._total, self._rate, self._tell = total, rate, tell
        self._backlog = BacklogLimiter(env, store, facts.partitions, None)
        self._timeout_s, self._restored_at = timeout_s, 0.0
        self._silence = ReplyTimeouts(store)
        self._window = Window(IN_FLIGHT, _BYTES)
        self._running: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._result = Replayed()
        self._waiting: dict[int, str] = {}
        self._defect: BaseException | None = None

    async def run(self, letters: AsyncIterator[DeadLetter]) -> Replayed:
        """If it is cancelled, what is on its way has two seconds to end."""
        try:
            await self._start_all(letters)
            await self._ended()
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

    async def _start_all(self, letters: AsyncIterator[DeadLetter]) -> None:
        pace = ReplayRate()
        try:
            async for letter in letters:
                if not self._fits(letter):
                    continue
                await pace.turn(self._rate or self._topic().topic.qps)
                if not self._window.try_acquire(letter):
                    await self._window.wait(letter)
                if self._over.is_set():
                    self._window.release(letter)
                    return
                task = asyncio.create_task(self._carry(letter))
                self._running.add(task)
                task.add_done_callback(self._carried)
        except (*_NO_TOPIC, Lost) as error:
            self._stop(str(error))

    def _carried(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._defect = self._defect or defect
            self._over.set()

    async def _ended(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    def _fits(self, letter: DeadLetter) -> bool:
        """Said before its turn in the stream: one that has no queue shall cost no time."""
        try:
            self._copy(letter)
        except NotReplayable as error:
            self._fail(letter, str(error))
            return False
        return True

    def _copy(self, letter: DeadLetter) -> Copy:
        return replay(letter, self._env, self._topic(), self._facts, self._store.now())

    async def _carry(self, letter: DeadLetter) -> None:
        try:
            if await self._put(letter):
                await self._remove(letter)
                self._result.replayed += 1
        except _NO_TOPIC as error:
            self._stop(str(error))
        except (NotAcknowledged, Lost) as error:
            self._fail(letter, str(error))
            self._stop(str(error))
        except (EvenlaneError, Refused) as error:
            self._fail(letter, str(error))
        finally:
            self._waiting.pop(letter.sequence, None)
            self._window.release(letter)
            self._say()

    async def _put(self, letter: DeadLetter) -> bool:
        """Until the queue has room. False if it is over before that, or somebody else has taken the letter away."""
        tries = 0
        while True:
            try:
                await self._put_counted(letter)
                return True
            except (BacklogFull, Full) as error:
                self._waiting[letter.sequence] = str(error)
                self._say()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FULL_S[min(tries, len(_FULL_S) - 1)]):
                    await self._over.wait()
                return False
            if not await self._shelf.there(letter.sequence):
                return False
            tries += 1

    async def _put_counted(self, letter: DeadLetter) -> None:
        """As a producer does, who keeps to the topic's `max_backlog`. Raises BacklogFull, and what `_stored` raises."""
        copy, accepted = self._copy(letter), self._topic()
        if accepted.topic.max_backlog is None:
            await self._stored(copy)
            return
        counted = PendingPut(letter.project, "", False, *copy, letter.size, accepted=accepted)
        await self._backlog.acquire(counted)
        receipt = None
        try:
            receipt = await self._stored(copy)
        finally:
            if counted.backlog is not None:
                counted.backlog.ended(copy.subject, receipt, monotonic())

    async def _stored(self, copy: Copy) -> Receipt:
        """Put it until that is acknowledged. Raises NotAcknowledged, Refused, Full."""
        loop = asyncio.get_running_loop()
        # (a try on its way when the store forgets the id could be stored a second time)
        until, tries, why = loop.time() + 0.95 * self._timeout_s, 0, ""
        while (left := until - loop.time()) > 0:
            tries += 1
            try:
                async with asyncio.timeout(min(_ANSWER_S, left)):
                    return await self._store.put(*copy)
            except (Lost, TimeoutError) as error:
                why = str(error) or await self._silence.reason(copy.subject, loop.time())
            await asyncio.sleep(min(left, _LOST_S[min(tries, len(_LOST_S)) - 1]))
            if tries > 1:
                await self._restore()
        raise NotAcknowledged(
            f"the message may or may not be stored, {tries} {'try' if tries == 1 else 'tries'} brought no"
            f" acknowledgement ({why}): the dead letter is still there"
        )

    async def _remove(self, letter: DeadLetter) -> None:
        try:
            await self._shelf.remove(letter.sequence)
        except (Lost, Refused) as error:
            raise Lost(f"its message is in its queue again, but the dead letter can't be removed: {error}") from error

    def _fail(self, letter: DeadLetter, why: str) -> None:
        self._result.failed.append(Failed(letter.sequence, letter.id, why))

    def _stop(self, why: str) -> None:
        self._result.stopped = self._result.stopped or why
        self._over.set()

    def _say(self) -> None:
        if self._tell is not None:
            result, waits = self._result, next(iter(self._waiting.values()), "")
            self._tell(Progress(result.replayed, len(result.failed), self._total, waits))

    async def _restore(self) -> None:
        """A store that answers and yet loses messages may have lost their streams, too."""
        now = asyncio.get_running_loop().time()
        if not self._store.connected or now - self._restored_at < _RESTORE_EVERY_S:
            return
        self._restored_at = now
        with contextlib.suppress(Lost, Refused, EvenlaneError):
            await self._store.prepare([LaneId("lanes", number) for number in range(self._facts.partitions)])
