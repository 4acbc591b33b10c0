"""Watches a node's event loop from another thread: reports the code that blocks it, and ends the process in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.error_text import shorten
from evenlane.engine.runtime.loop_watch.block_timer import BlockTimer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.runtime.loop_watch.culprit import Culprit

_log = structlog.get_logger(__name__)

_LOOK_S = 0.25
_SECOND = 1_000_000_000
_REPORTED_AFTER = _SECOND


class Blocker(NamedTuple):
    """The code that blocks the loop, and the messages that its handler has; none if it isn't a handler."""

    culprit: Culprit
    handler: str
    messages: Sequence[Message]

    def sentence(self, blocked_s: float) -> str:
        """Describe the blocker, as a continuation of the node's name."""
        return f"has been blocked for {self._describe(blocked_s)}"

    def last_sentence(self, blocked_s: float, lease_ttl: float) -> str:
        """Describe the end of the process in the same way. The node's record shows this until its lease ends."""
        return f"ended its process, blocked for {self._describe(blocked_s)}: its lease ends within {lease_ttl:g} s"

    def _describe(self, blocked_s: float) -> str:
        return f"{blocked_s:.0f} s by {self.culprit.where}{self._describe_messages()}"

    def _describe_messages(self) -> str:
        if not self.messages:
            return ""
        handled = "a message" if len(self.messages) == 1 else f"{len(self.messages)} messages"
        return f", handling {handled} of {self.messages[0].project}"


def of_blocker(blocker: Blocker) -> dict[str, Any]:
    """Return the log fields of a blocker."""
    culprit_fields = {"at": blocker.culprit.where, "stack": blocker.culprit.stack}
    if not blocker.messages:
        return culprit_fields
    first = blocker.messages[0]
    its = {"handler": blocker.handler, "project": first.project, "id": shorten(first.id)}
    return culprit_fields | its | ({"messages": len(blocker.messages)} if len(blocker.messages) > 1 else {})


class Loop(Protocol):
    """The watched loop. All members are called in the watching thread."""

    @property
    def beats(self) -> int:
        """A number that changes while the loop runs."""
        ...

    def blocker(self) -> Blocker | None:
        """Return the code that the loop runs now; None if its thread has ended."""
        ...

    def stacks(self) -> dict[str, str]:
        """Return the present stack of each thread of the process, by thread name."""
        ...

    async def end_process(self, blocker: Blocker, blocked_s: float) -> None:
        """End the process, whose loop was blocked for longer than the limit; the troubles already say so."""
        ...


class LoopWatch:
    """Watches one loop; `run` does so until cancelled. `limit_s` is how long the loop may be blocked (0: without
    limit); `lease_ttl` is how long the node's record outlives its process, both in seconds.

    Invariant: `_blocker` is set from the report of a block until the loop runs again; `_blocked` (ns) belongs to it,
    and `_before` has the sum of earlier blocks.
    """

    def __init__(
        self, loop: Loop, troubles: Troubles, limit_s: float, lease_ttl: float, now: Callable[[], int] = now_ns
    ) -> None:
        self._loop, self._troubles, self._limit, self._now = loop, troubles, round(limit_s * _SECOND), now
        self._lease_ttl = lease_ttl
        self._timer = BlockTimer(loop.beats, now())
        self._blocker: Blocker | None = None
        self._blocked = self._before = 0

    @property
    def blocked_s(self) -> float:
        """Total seconds for which the loop was blocked, counting each block of 1 s and more."""
        return (self._before + (self._blocked if self._blocker is not None else 0)) / _SECOND

    async def run(self, pause: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        while True:
            await pause(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Check the loop once, and act on the result."""
        blocked = self._timer.look(self._loop.beats, self._now())
        if blocked < _REPORTED_AFTER:
            self._on_freed()
            return
        self._blocked = blocked
        if self._blocker is None and not self._look():
            return
        assert self._blocker is not None
        blocked_s = blocked / _SECOND
        self._troubles.begin("blocked", self._blocker.sentence(blocked_s), ready=False)
        if self._limit and blocked >= self._limit:
            blocker = self._loop.blocker() or self._blocker  # its stack may have changed since the first report
            _log.error(
                "the event loop stays blocked: the process ends",
                blocked_s=round(blocked_s, 1),
                **of_blocker(blocker),
                threads=self._loop.stacks(),
            )
            self._troubles.begin("blocked", blocker.last_sentence(blocked_s, self._lease_ttl), ready=False)
            await self._loop.end_process(blocker, blocked_s)

    def _look(self) -> bool:
        self._blocker = self._loop.blocker()
        if self._blocker is not None:
            _log.warning(
                "the event loop is blocked", blocked_s=round(self._blocked / _SECOND, 1), **of_blocker(self._blocker)
            )
        return self._blocker is not None

    def _on_freed(self) -> None:
        if self._blocker is None:
            return
        _log.info(
            "the event loop turns again", blocked_s=round(self._blocked / _SECOND, 1), at=self._blocker.culprit.where
        )
        self._before += self._blocked
        self._blocked, self._blocker = 0, None
        self._troubles.end("blocked")
