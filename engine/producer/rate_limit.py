"""Admission control: a producer puts of each topic no faster than its quota, times a factor.

What has to wait is set aside by topic, so that other topics' puts pass by; those of one topic keep their order. No
more is set aside than goes within half of a put's time, so that whoever puts many waits with the source.
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.producer.put import Completion, PendingPut
    from evenlane.engine.producer.sender import Sender
    from evenlane.quota.topics.topic import Accepted

_MOST_ASIDE = 4_096  # messages of one topic
_LOOK_S = 0.5  # a changed quota counts after so long
_SWEEP_FROM = 1_024  # topics
_IN_A_ROW = 256  # before the event loop gets its turn


def checked(admission: float | None) -> float | None:
    """Raises ConfigError."""
    right = isinstance(admission, int | float) and not isinstance(admission, bool)
    if admission is None or (right and isfinite(admission) and admission > 0):
        return admission
    raise ConfigError(f"admission {admission!r} is not a number above 0: 1.0 is the topic's own rate")


def limiter_of(rate: float) -> AsyncLimiter:
    """At most `rate` a second, from the first second on: what may come at once is 10 ms of it, and at least 1.

    (AsyncLimiter(0.5, 1) would admit nothing ever, and AsyncLimiter(10, 1) 19 in its first second.)
    """
    burst = max(1, ceil(rate / 100))
    return AsyncLimiter(burst, burst / rate)


class RateLimiter:
    """`accepted_of` tells the present topic of a project; `timeout_s` is the time of a put."""

    def __init__(
        self, factor: float, accepted_of: Callable[[str], Accepted | None], sender: Sender, timeout_s: float
    ) -> None:
        self._factor, self._accepted_of, self._sender, self._timeout_s = factor, accepted_of, sender, timeout_s
        self._gates: dict[str, TopicLimiter] = {}
        self._sweep_at = _SWEEP_FROM

    def gate(self, sending: PendingPut) -> TopicLimiter:
        gate = self._gates.get(sending.project)
        if gate is None:
            self._sweep()
            gate = self._gates[sending.project] = TopicLimiter(
                sending, self._factor, self._accepted_of, self._sender, self._timeout_s
            )
        return gate

    def _sweep(self) -> None:
        if len(self._gates) >= self._sweep_at:
            self._gates = {project: gate for project, gate in self._gates.items() if not gate.idle}
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._gates))

    def forget(self, landing: Completion) -> None:
        """Nobody waits any more for these: they are not sent."""
        for gate in self._gates.values():
            gate.forget(landing)

    async def close(self) -> None:
        """What waits fails: it was not sent."""
        await asyncio.gather(*(gate.close() for gate in self._gates.values()))


class TopicLimiter:
    """Of one topic."""

    def __init__(
        self,
        first: PendingPut,
        factor: float,
        accepted_of: Callable[[str], Accepted | None],
        sender: Sender,
        timeout_s: float,
    ) -> None:
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
    def idle(self) -> bool:
        """Whether it can be dropped: nothing waits, and a new one would admit no more than it would."""
        return not self._aside and self._limiter.has_capacity(self._limiter.max_rate)

    @property
    def full(self) -> bool:
        return len(self._aside) >= self._most

    async def room(self, sending: PendingPut) -> None:
        """Wait until one more may be set aside; raises NotAcknowledged. The wait is part of the put's time."""
        try:
            async with asyncio.timeout(sending.deadline - monotonic()):
                while self.full:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self._too_late(sending) from None

    def add(self, sending: PendingPut) -> None:
        """It goes when its turn has come; its `landing` gets the outcome, never at once."""
        self._aside.append(sending)
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._pass(), name="producer admission")

    def forget(self, landing: Completion) -> None:
        forgotten = [sending for sending in self._aside if sending.landing is landing]
        self._aside = deque(sending for sending in self._aside if sending.landing is not landing)
        for sending in forgotten:
            self._sender.turn_away(sending, None)
        self._room.set()

    async def close(self) -> None:
        if self._passing is not None:
            await cancel_and_wait(self._passing)
        while self._aside:
            sending = self._aside.popleft()
            self._sender.turn_away(sending, self._not_sent(sending, "the producer was closed while it waited"))
        self._room.set()

    async def _pass(self) -> None:
        passed = 0
        while self._aside:
            sending = self._aside[0]
            if await self._admitted(sending):
                await self._send(sending)
            passed += 1
            if passed % _IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _admitted(self, sending: PendingPut) -> bool:
        """Whether its turn has come; if not, the topic has been looked at again, or the put's time is over."""
        accepted = self._accepted_of(self._project)
        if accepted is not None and accepted is not self._accepted:
            self._follow(accepted)
        if self._sender.closed:
            return True
        if self._limiter.has_capacity():
            await self._limiter.acquire()
            return True
        now = monotonic()
        if now >= sending.deadline:
            self._turn_away(sending, self._too_late(sending))
            return False
        try:
            async with asyncio.timeout(min(_LOOK_S, sending.deadline - now)):
                await self._limiter.acquire()
        except TimeoutError:
            return False
        return True

    async def _send(self, sending: PendingPut) -> None:
        """It stays aside until it has room: it may be forgotten meanwhile."""
        size = sending.size
        if not self._is_head(sending):
            return
        if not self._sender.window.take(size):
            try:
                await self._sender.room(sending)
            except EvenlaneError as error:
                self._turn_away(sending, error)
                return
            if not self._is_head(sending):
                self._sender.window.give_back(size)
                return
        self._aside.popleft()
        self._room.set()
        self._sender.send(sending)

    def _is_head(self, sending: PendingPut) -> bool:
        return bool(self._aside) and self._aside[0] is sending

    def _turn_away(self, sending: PendingPut, error: EvenlaneError) -> None:
        if self._is_head(sending):
            self._aside.popleft()
            self._room.set()
            self._sender.turn_away(sending, error)

    def _too_late(self, sending: PendingPut) -> NotAcknowledged:
        return self._not_sent(
            sending,
            f"admission holds its topic to {self._rate:,.10g}/s, and its turn did not come in {self._timeout_s:g} s",
        )

    @staticmethod
    def _not_sent(sending: PendingPut, why: str) -> NotAcknowledged:
        return NotAcknowledged(f"the message for {sending.project} was not sent and is not stored: {why}")
