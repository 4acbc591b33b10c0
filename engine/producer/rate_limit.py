"""Client-side rate limit: a producer's puts for a topic don't exceed the topic's quota times a factor.

Waiting puts are set aside by topic, so that other topics' puts pass; puts of one topic keep their order. At most as
many are set aside as can be sent within half of a put's timeout, so that a source of many puts is slowed down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import ceil, isfinite
from time import monotonic
from typing import TYPE_CHECKING

from aiolimiter import AsyncLimiter

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.errors import ConfigError, EvenlaneError, NotAcknowledged
from evenlane.engine.producer.tuning import DEFAULT, ProducerTuning

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.producer.pipeline.pending_put import Completion, PendingPut
    from evenlane.engine.producer.pipeline.sender import Sender
    from evenlane.quota.topics.topic import Accepted

_MOST_ASIDE = 4_096  # messages of one topic
_IN_A_ROW = 256  # before the event loop runs other tasks


def check_admission(admission: float | None) -> float | None:
    """Return a valid factor. Raises ConfigError."""
    right = isinstance(admission, int | float) and not isinstance(admission, bool)
    if admission is None or (right and isfinite(admission) and admission > 0):
        return admission
    raise ConfigError(f"admission {admission!r} is not a number above 0: 1.0 is the topic's own rate")


def limiter_of(rate: float) -> AsyncLimiter:
    """Return a limiter of `rate` per second, also in the first second: its burst is 10 ms of the rate, at least 1.

    (AsyncLimiter(0.5, 1) would never admit anything, and AsyncLimiter(10, 1) would admit 19 in its first second.)
    """
    burst = max(1, ceil(rate / 100))
    return AsyncLimiter(burst, burst / rate)


class RateLimiter:
    """Rate limit of all topics. Sets admitted puts aside, and sends each in its turn when the window has room.
    `accepted_of` returns a project's present topic; `timeout_s` is a put's timeout.
    """

    def __init__(
        self,
        factor: float,
        accepted_of: Callable[[str], Accepted | None],
        sender: Sender,
        timeout_s: float,
        tuning: ProducerTuning = DEFAULT,
    ) -> None:
        self._tuning = tuning
        self._factor, self._accepted_of, self._sender, self._timeout_s = factor, accepted_of, sender, timeout_s
        self._topics: dict[str, TopicLimiter] = {}
        self._sweep_at = tuning.sweep_from

    def try_acquire(self, pending: PendingPut) -> bool:
        """Whether a put may be set aside."""
        return pending.is_alone or not self._get_limiter(pending).is_full

    async def acquire(self, pending: PendingPut) -> None:
        """Wait until a put may be set aside. Raises NotAcknowledged."""
        await self._get_limiter(pending).wait_for_room(pending)

    def send(self, pending: PendingPut) -> None:
        """Set a put aside; it is sent in its turn. Its `completion` gets the outcome, never during this call."""
        pending.deadline = pending.deadline or monotonic() + self._timeout_s
        self._get_limiter(pending).add(pending)

    def _get_limiter(self, pending: PendingPut) -> TopicLimiter:
        limiter = self._topics.get(pending.project)
        if limiter is None:
            self._sweep()
            limiter = self._topics[pending.project] = TopicLimiter(
                pending, self._factor, self._accepted_of, self._sender, self._timeout_s, self._tuning.look_s
            )
        return limiter

    def _sweep(self) -> None:
        if len(self._topics) >= self._sweep_at:
            self._topics = {project: limiter for project, limiter in self._topics.items() if not limiter.is_idle}
            self._sweep_at = max(self._tuning.sweep_from, 2 * len(self._topics))

    def discard(self, completion: Completion) -> None:
        """Complete these puts without an outcome, as their caller has gone. They are not sent."""
        for limiter in self._topics.values():
            limiter.discard(completion)

    async def close(self) -> None:
        """Fail all waiting puts, which were not sent."""
        await asyncio.gather(*(limiter.close() for limiter in self._topics.values()))


class TopicLimiter:
    """Rate limit of one topic.

    Invariants: `_aside` has waiting puts in order, at most `_most` unless their callers wait alone; the task `_passing`
    runs while it isn't empty. `_rate`, `_limiter` and `_most` are those of `_accepted`.
    """

    def __init__(
        self,
        first: PendingPut,
        factor: float,
        accepted_of: Callable[[str], Accepted | None],
        sender: Sender,
        timeout_s: float,
        look_s: float,
    ) -> None:
        self._look_s = look_s
        self._project, self._factor, self._sender, self._timeout_s = first.project, factor, sender, timeout_s
        self._accepted_of = accepted_of
        self._aside: deque[PendingPut] = deque()
        self._passing: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._follow(first.accepted)

    def _follow(self, accepted: Accepted) -> None:
        self._accepted = accepted
        self._rate = self._factor * accepted.topic.qps
        self._limiter = limiter_of(self._rate)
        self._most = max(1, min(_MOST_ASIDE, int(self._rate * self._timeout_s / 2)))

    @property
    def is_idle(self) -> bool:
        """Whether the limiter can be dropped: no put waits, and a new limiter would admit no more than this one."""
        return not self._aside and self._limiter.has_capacity(self._limiter.max_rate)

    @property
    def is_full(self) -> bool:
        return len(self._aside) >= self._most

    async def wait_for_room(self, pending: PendingPut) -> None:
        """Wait until one more put may be set aside. Raises NotAcknowledged at the put's deadline."""
        try:
            async with asyncio.timeout(pending.deadline - monotonic()):
                while self.is_full:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self._explain_too_late(pending) from None

    def add(self, pending: PendingPut) -> None:
        """Set a put aside until its turn."""
        self._aside.append(pending)
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._pass(), name="producer admission")

    def discard(self, completion: Completion) -> None:
        abandoned = [pending for pending in self._aside if pending.completion is completion]
        self._aside = deque(pending for pending in self._aside if pending.completion is not completion)
        for pending in abandoned:
            self._sender.complete(pending, None)
        self._room.set()

    async def close(self) -> None:
        if self._passing is not None:
            await cancel_and_wait(self._passing)
        while self._aside:
            pending = self._aside.popleft()
            self._sender.complete(pending, self._explain_not_sent(pending, "the producer was closed while it waited"))
        self._room.set()

    async def _pass(self) -> None:
        passed = 0
        while self._aside:
            pending = self._aside[0]
            if await self._wait_for_turn(pending):
                await self._send(pending)
            passed += 1
            if passed % _IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _wait_for_turn(self, pending: PendingPut) -> bool:
        """Return whether the put's turn has come; False also after a check for a changed topic, or its deadline."""
        accepted = self._accepted_of(self._project)
        if accepted is not None and accepted is not self._accepted:
            self._follow(accepted)
        if self._sender.is_closed:
            return True
        if self._limiter.has_capacity():
            await self._limiter.acquire()
            return True
        now = monotonic()
        if now >= pending.deadline:
            self._refuse(pending, self._explain_too_late(pending))
            return False
        try:
            async with asyncio.timeout(min(self._look_s, pending.deadline - now)):
                await self._limiter.acquire()
        except TimeoutError:
            return False
        return True

    async def _send(self, pending: PendingPut) -> None:
        """Send the first put once the window has room. Until then it stays aside, as it may be abandoned meanwhile."""
        window = self._sender.window
        if not self._is_head(pending):
            return
        if not window.try_acquire(pending):
            try:
                await window.acquire(pending)
            except EvenlaneError as error:
                self._refuse(pending, error)
                return
            if not self._is_head(pending):
                window.release(pending)
                return
        self._aside.popleft()
        self._room.set()
        self._sender.send(pending)

    def _is_head(self, pending: PendingPut) -> bool:
        return bool(self._aside) and self._aside[0] is pending

    def _refuse(self, pending: PendingPut, error: EvenlaneError) -> None:
        if self._is_head(pending):
            self._aside.popleft()
            self._room.set()
            self._sender.complete(pending, error)

    def _explain_too_late(self, pending: PendingPut) -> NotAcknowledged:
        return self._explain_not_sent(
            pending,
            f"admission limits its topic to {self._rate:,.10g}/s, and its turn did not come in {self._timeout_s:g} s",
        )

    @staticmethod
    def _explain_not_sent(pending: PendingPut, why: str) -> NotAcknowledged:
        return NotAcknowledged(f"the message for {pending.project} was not sent and is not stored: {why}")
