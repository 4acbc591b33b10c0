"""Handles failed attempts: puts a copy of the message, for a later attempt or among the dead letters. The original is
settled only once the store has acknowledged the copy; if the put fails, the original stays. A fallback handler may take
a message that would otherwise be dead-lettered.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from evenlane.engine.core.message import copies
from evenlane.engine.core.message.error_text import describe_error
from evenlane.engine.core.message.handler_exceptions import Reject, Retry, text_of
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.node.queues.project_limit import ProjectLimit
from evenlane.quota.rates.backoff import retry_delay_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt, Store
    from evenlane.engine.node.handlers.fallback import Fallback
    from evenlane.engine.node.queues.withheld import WithheldProjects
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.work_signal import WorkSignal

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_REASON = "paused"
_MOST_STUCK = 64  # waiting puts and fallbacks per project
_UNTRUSTED_S = 0.1  # between two checks of the lease
_SLOWEST_S = {Refused: 30.0, Lost: 2.0}  # between two tries
_MOST, _MOST_BYTES = 10_000, 64 << 20  # copies under way at once, over all projects


class DeadLetterReason(NamedTuple):
    """The reason why a message is dead-lettered, and the error of its last attempt."""

    reason: str
    error: str


class _Outcome:
    """A copy under way. `reason` says why its message is dead-lettered; "" if it isn't."""

    def __init__(
        self,
        lane: Lane,
        sequence: int,
        generation: int,
        project: str,
        copy: copies.Copy,
        counter: str,
        message: Message | None = None,
        reason: str = "",
    ) -> None:
        self.lane, self.sequence, self.generation, self.project = lane, sequence, generation, project
        self.copy, self.counter, self.message, self.reason = copy, counter, message, reason
        self.tries = 0
        self.refused = ""  # the error of the last try


class FailureHandler:
    """Retries failed messages, or dead-letters them.

    A project whose copies are refused is withheld, so that it can't fill the node's memory with them. Nothing is put
    while the lease isn't trusted: the partition may belong to another node, which starts the message again. `random()`
    returns a number in [0, 1).

    Invariants:
    - `_open` has the outcomes under way, until their copy is acknowledged or they become stale; `_counted` and `_bytes`
      are their number and size, without unroutable messages.
    - `_stuck` has the outcomes that wait for the store after a failed put, and those with a fallback.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        counters: Counters,
        settlement: MessageSettlement,
        withheld: WithheldProjects,
        failure_log: FailureLog,
        fallback: Fallback | None,
        trust: LeaseTrust,
        signal: WorkSignal,
        random: Callable[[], float],
    ) -> None:
        self._store, self._cluster, self._counters, self._settlement = store, cluster, counters, settlement
        self._stuck = ProjectLimit(withheld, _REASON, _MOST_STUCK)
        self._failure_log, self._fallback = failure_log, fallback
        self._trust, self._signal, self._random = trust, signal, random
        self._falling: set[asyncio.Task[None]] = set()  # fallbacks that run, or wait to
        self._open: dict[int, _Outcome] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = False
        self._bytes = self._counted = 0
        self.crowded = False
        """Whether too many copies are under way to start more messages."""

    @property
    def pending(self) -> int:
        return len(self._open)

    @property
    def messages(self) -> list[Message]:
        """The messages whose copies aren't acknowledged yet, without unroutable ones, which belong to no queue."""
        return [outcome.message for outcome in self._open.values() if outcome.message is not None]

    def count_stuck(self, project: str) -> tuple[int, str]:
        """The number of the project's copies that have failed more than once, and the last error."""
        stuck = [each for each in self._open.values() if each.project == project and each.tries > 1]
        return len(stuck), stuck[-1].refused if stuck else ""

    def list_pending(self, lane: Lane) -> list[int]:
        """Messages of this lane whose copies aren't acknowledged yet. Unroutable messages are left out: the lane's next
        feed finds them again.
        """
        return [
            outcome.sequence
            for outcome in self._open.values()
            if outcome.lane is lane
            and outcome.generation == lane.generation
            and outcome.project != copies.UNROUTABLE_PROJECT
        ]

    def find_fallback(self, task: asyncio.Task[Any]) -> list[Message]:
        """The message whose fallback runs in a task. Thread-safe."""
        return self._fallback.find_messages(task) if self._fallback is not None else []

    def decide(self, message: Message, error: BaseException) -> DeadLetterReason | float:
        """Decide what follows an attempt that ended with `error`: the dead letters, or another attempt
        after a delay (s).
        """
        topic = message.queue.rules.topic
        attempt = message.attempt
        if isinstance(error, Reject):
            return DeadLetterReason("rejected", text_of(error))
        if attempt >= (topic.max_attempts if topic is not None else 5):
            reason = f"failed {attempt} times" if attempt > 1 else "failed once, and may not be retried"
            return DeadLetterReason(reason, describe_error(error))
        if isinstance(error, Retry):
            return error.after
        return retry_delay_s(topic.backoff, attempt, self._random()) if topic is not None else 1.0

    def retry(self, message: Message, after_s: float) -> None:
        """Schedule another attempt by a copy in the delay stream, or in the subscription's own stream of retries."""
        due = self._store.now() + int(after_s * _SECOND)
        self._put(self._outcome(message, copies.retry(message, self._cluster, due), "retried"))

    def dead_letter(self, message: Message, death: DeadLetterReason, *, fall_back: bool = True) -> bool:
        """Dead-letter a message, or pass it to the fallback handler. True if the fallback has it: the attempt is then
        over only when the fallback has ended.
        """
        outcome = self._outcome(message, copies.dead_letter(message, self._cluster, *death), "dead", death.reason)
        if self._fallback is None or not fall_back:
            self._put(outcome)
            return False
        self._enter(outcome)
        self._stuck.add(outcome.project)
        self._fallback.expect(message)
        task = asyncio.create_task(self._fall_back(outcome, message, death), name="fallback")
        self._falling.add(task)
        task.add_done_callback(self._falling.discard)
        return True

    async def _fall_back(self, outcome: _Outcome, message: Message, death: DeadLetterReason) -> None:
        assert self._fallback is not None
        message.note_dead_letter(*death)
        lane, sequence, generation = outcome.lane, outcome.sequence, outcome.generation
        try:
            while not await self._fallback.handle(
                message, lambda: self._trust.is_held() and lane.is_current(sequence, generation)
            ):
                await asyncio.sleep(_UNTRUSTED_S)
                if not lane.is_current(sequence, generation):
                    break  # it belongs to another node, which starts it again
        except asyncio.CancelledError:
            self._end(outcome)
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the node
            self._settlement.on_attempt_end(message)
            # (some of both: error texts are cut at 512 characters)
            text = f"{death.error[:240]}; its fallback failed, too: {describe_error(error)[:240]}"
            outcome.copy = copies.dead_letter(message, self._cluster, death.reason, text)
            self._put(outcome)
        else:
            self._settlement.on_attempt_end(message)
            if lane.is_current(sequence, generation):
                self._counters.fallen_back += 1
                self._settlement.settle_copied(lane, sequence, generation, message)
            self._end(outcome)
        finally:
            self._fallback.forgo(message)
            self._stuck.remove(outcome.project)

    def unroutable(self, lane: Lane, sequence: int, copy: copies.Copy) -> None:
        """Dead-letter an unroutable message."""
        self._put(_Outcome(lane, sequence, lane.generation, copies.UNROUTABLE_PROJECT, copy, "stray"))

    async def drain(self, deadline: float) -> bool:
        """Wait until the loop's time `deadline` for copies under way. True if all of them were put."""
        left = deadline - asyncio.get_running_loop().time()
        if left > 0:
            try:
                async with asyncio.timeout(left):
                    await self._idle.wait()
            except TimeoutError:
                _log.warning("copies not put in time: their messages will be handled again", count=self.pending)
        self._stopped = True
        all_put = not self._open
        for timer in self._timers.values():
            timer.cancel()
        for task in self._falling:
            task.cancel()
        if self._fallback is not None:
            self._fallback.close()
        return all_put

    @staticmethod
    def _outcome(message: Message, copy: copies.Copy, counter: str, reason: str = "") -> _Outcome:
        lane, sequence = message.place
        return _Outcome(lane, sequence, message.generation, message.project, copy, counter, message, reason)

    def _enter(self, outcome: _Outcome) -> None:
        if id(outcome) not in self._open:
            self._open[id(outcome)] = outcome
            self._count(outcome, 1)
            self._idle.clear()

    def _put(self, outcome: _Outcome) -> None:
        self._timers.pop(id(outcome), None)
        if self._stopped or not outcome.lane.is_current(outcome.sequence, outcome.generation):
            self._end(outcome)
            return
        self._enter(outcome)
        if not self._trust.is_held():
            self._timers[id(outcome)] = asyncio.get_running_loop().call_later(_UNTRUSTED_S, self._put, outcome)
            return
        future = self._store.put(*outcome.copy)
        future.add_done_callback(partial(self._on_answer, outcome))

    def _on_answer(self, outcome: _Outcome, future: asyncio.Future[Receipt]) -> None:
        if future.cancelled():
            self._end(outcome)
            return
        error = future.exception()
        if error is None:
            setattr(self._counters, outcome.counter, getattr(self._counters, outcome.counter) + 1)
            self._settlement.settle_copied(outcome.lane, outcome.sequence, outcome.generation, outcome.message)
            if outcome.reason and outcome.message is not None:
                self._failure_log.dead(outcome.message, outcome.reason)
            self._end(outcome)
        elif isinstance(error, Lost | Refused):
            self._retry(outcome, error)
        else:
            self._end(outcome)
            raise error

    def _retry(self, outcome: _Outcome, error: BaseException) -> None:
        outcome.tries += 1
        outcome.refused = str(error)
        if outcome.tries == 1:
            self._stuck.add(outcome.project)
        stuck = self._stuck.count(outcome.project)
        if (outcome.tries == 1 and stuck == 1) or outcome.tries % 20 == 0:
            self._failure_log.log_stuck(outcome.lane, outcome.project, error, outcome.tries, stuck)
        slowest = _SLOWEST_S[Lost if isinstance(error, Lost) else Refused]
        delay = min(slowest, 0.25 * 2 ** min(outcome.tries, 8)) * (0.75 + self._random() / 2)
        loop = asyncio.get_running_loop()
        self._timers[id(outcome)] = loop.call_later(delay, self._put, outcome)

    def _count(self, outcome: _Outcome, sign: int) -> None:
        if outcome.project != copies.UNROUTABLE_PROJECT:  # unroutable messages must not hold up anybody's messages
            self._counted += sign
            self._bytes += sign * len(outcome.copy.body)
        self.crowded = self._counted >= _MOST or self._bytes >= _MOST_BYTES

    def _end(self, outcome: _Outcome) -> None:
        if id(outcome) in self._open:
            del self._open[id(outcome)]
            was_crowded = self.crowded
            self._count(outcome, -1)
            if was_crowded and not self.crowded:
                self._signal.notify()
        if outcome.tries:
            self._stuck.remove(outcome.project)
        if not self._open:
            self._idle.set()
