"""What becomes of a message whose attempt failed: a copy is put (for a later attempt, or among the dead letters),
its acknowledgement awaited, and only then is the original settled. If the put fails the original stays.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from engine import copies
from engine.message import Reject, Retry
from engine.ports import Lost, Refused
from quota.backoff import retry_delay_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.lane import Lane
    from engine.message import Message
    from engine.node.counters import Counters
    from engine.ports import Receipt, Store

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_HELD_BEYOND = 64  # failed puts of one project that wait at once; beyond it the project isn't served meanwhile
_UNTRUSTED_S = 0.1  # between two looks at the lease
_SLOWEST_S = {Refused: 30.0, Lost: 2.0}  # between two tries
_MOST, _MOST_BYTES = 10_000, 64 << 20  # under way at once, whatever projects they are of


@dataclass
class _Outcome:
    lane: Lane
    sequence: int
    generation: int
    project: str
    copy: copies.Copy
    counter: str
    tries: int = 0


class Outcomes:
    """`settle(lane, sequence, generation)` ends the original; `hold(project, on)` stops and resumes a project whose
    copies are refused, so that it can't fill the node's memory with them. Nothing is put while the lease isn't
    `trusted()`: its partitions may be another's, who begins the message anew.
    """

    def __init__(
        self,
        store: Store,
        env: str,
        counters: Counters,
        settle: Callable[[Lane, int, int], None],
        hold: Callable[[str, bool], None],
        on_room: Callable[[], None],
        random: Callable[[], float],
        trusted: Callable[[], bool],
    ) -> None:
        self._store, self._env, self._counters = store, env, counters
        self._settle, self._hold, self._random = settle, hold, random
        self._trusted = trusted
        self.on_room = on_room
        self._open: dict[int, _Outcome] = {}
        self._stuck: Counter[str] = Counter()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = False
        self._bytes = self._counted = 0
        self.crowded = False
        """So many copies are under way that nothing more should be started."""

    @property
    def pending(self) -> int:
        return len(self._open)

    def pending_of(self, lane: Lane) -> list[int]:
        """Messages of this lane whose copies aren't acknowledged yet; not strays: whoever feeds them finds them."""
        return [
            outcome.sequence
            for outcome in self._open.values()
            if outcome.lane is lane and outcome.generation == lane.generation and outcome.project != copies.STRAY
        ]

    def failed(self, message: Message, error: BaseException) -> None:
        """An attempt ended with `error`: decide what follows, and see to it."""
        topic = message.queue.topic
        most = topic.max_attempts if topic is not None else 5
        text = _described(error)
        attempt = message.attempt
        if isinstance(error, Reject):
            self._begin(message, copies.dead_letter(message, self._env, "rejected", str(error.reason)), "dead")
        elif attempt >= most:
            reason = f"failed {attempt} times" if attempt > 1 else "failed once, and may not be retried"
            self._begin(message, copies.dead_letter(message, self._env, reason, text), "dead")
        else:
            after = error.after if isinstance(error, Retry) else self._backoff(message, attempt)
            due = self._store.now() + int(after * _SECOND)
            self._begin(message, copies.retry(message, self._env, due), "retried")
        _log.debug("attempt failed", message=repr(message), error=text[:200])

    def stray(self, lane: Lane, sequence: int, copy: copies.Copy) -> None:
        """A message that belongs to no queue."""
        self._put(_Outcome(lane, sequence, lane.generation, copies.STRAY, copy, "stray"))

    async def drain(self, deadline: float) -> bool:
        """Wait until the loop's time `deadline` for what is under way; whether all of it was put."""
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
        return all_put

    def _backoff(self, message: Message, attempt: int) -> float:
        topic = message.queue.topic
        return retry_delay_s(topic.backoff, attempt, self._random()) if topic is not None else 1.0

    def _begin(self, message: Message, copy: copies.Copy, counter: str) -> None:
        self._put(_Outcome(message.lane, message.sequence, message.generation, message.project, copy, counter))

    def _put(self, outcome: _Outcome) -> None:
        self._timers.pop(id(outcome), None)
        if self._stopped or not outcome.lane.current(outcome.sequence, outcome.generation):
            self._end(outcome)
            return
        if id(outcome) not in self._open:
            self._open[id(outcome)] = outcome
            self._count(outcome, 1)
            self._idle.clear()
        if not self._trusted():
            self._timers[id(outcome)] = asyncio.get_running_loop().call_later(_UNTRUSTED_S, self._put, outcome)
            return
        future = self._store.put(*outcome.copy)
        future.add_done_callback(partial(self._answered, outcome))

    def _answered(self, outcome: _Outcome, future: asyncio.Future[Receipt]) -> None:
        if future.cancelled():
            self._end(outcome)
            return
        error = future.exception()
        if error is None:
            setattr(self._counters, outcome.counter, getattr(self._counters, outcome.counter) + 1)
            self._settle(outcome.lane, outcome.sequence, outcome.generation)
            self._end(outcome)
        elif isinstance(error, Lost | Refused):
            self._again(outcome, error)
        else:
            self._end(outcome)
            raise error

    def _again(self, outcome: _Outcome, error: BaseException) -> None:
        outcome.tries += 1
        if outcome.tries == 1:
            self._stuck[outcome.project] += 1
            if self._stuck[outcome.project] == _HELD_BEYOND:
                self._hold(outcome.project, True)
        if (outcome.tries == 1 and self._stuck[outcome.project] == 1) or outcome.tries % 20 == 0:
            _log.warning(
                "a copy can't be put: its message stays where it is", to=outcome.copy.subject,
                tries=outcome.tries, error=str(error), waiting=self._stuck[outcome.project],
            )  # fmt: skip
        slowest = _SLOWEST_S[Lost if isinstance(error, Lost) else Refused]
        delay = min(slowest, 0.25 * 2 ** min(outcome.tries, 8)) * (0.75 + self._random() / 2)
        loop = asyncio.get_running_loop()
        self._timers[id(outcome)] = loop.call_later(delay, self._put, outcome)

    def _count(self, outcome: _Outcome, sign: int) -> None:
        if outcome.project != copies.STRAY:  # strays are nobody's: they must not stop what is somebody's
            self._counted += sign
            self._bytes += sign * len(outcome.copy.body)
        self.crowded = self._counted >= _MOST or self._bytes >= _MOST_BYTES

    def _end(self, outcome: _Outcome) -> None:
        if id(outcome) in self._open:
            del self._open[id(outcome)]
            was_crowded = self.crowded
            self._count(outcome, -1)
            if was_crowded and not self.crowded:
                self.on_room()
        if outcome.tries:
            self._stuck[outcome.project] -= 1
            if self._stuck[outcome.project] == _HELD_BEYOND - 1:
                self._hold(outcome.project, False)
        if not self._open:
            self._idle.set()


def _described(error: BaseException) -> str:
    """Type and text of a handler's exception, whatever its own `__str__` does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - one tenant's odd exception must not end the node
        text = "(its text can't be had)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
