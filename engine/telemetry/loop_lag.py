"""Measures how late the event loop is: a repeating timer fires late by as long as the loop was held."""

from __future__ import annotations

import asyncio

from evenlane.engine.base.clock import now_ns

_EVERY_S = 0.05
_WINDOW = 10_000_000_000  # ns
_SECOND = 1_000_000_000


class RecentMaximum:
    """Maximum over the last 10 to 20 s. Pure; `now` is monotonic ns.

    Invariant: `_newer` is the maximum since `_since`, `_older` that of the 10 s before.
    """

    def __init__(self, now: int) -> None:
        self._since = now
        self._newer = self._older = 0

    def note(self, late: int, now: int) -> None:
        self._turn(now)
        self._newer = max(self._newer, late)

    def maximum(self, now: int) -> int:
        self._turn(now)
        return max(self._newer, self._older)

    def _turn(self, now: int) -> None:
        if now - self._since >= _WINDOW:
            self._older = self._newer if now - self._since < 2 * _WINDOW else 0
            self._newer, self._since = 0, now


class LoopLag:
    """The lag of one event loop: call `open` in it, then `close`."""

    def __init__(self) -> None:
        self._worst = RecentMaximum(now_ns())
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0
        self.beats = 0  # grows while the loop runs

    @property
    def seconds(self) -> float:
        """Longest delay of the last 10 to 20 s."""
        return self._worst.maximum(now_ns()) / _SECOND

    def open(self) -> None:
        self._due = now_ns() + int(_EVERY_S * _SECOND)
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._on_timer)

    def close(self) -> None:
        """Stop. No effect if never opened."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        now = now_ns()
        self.beats += 1
        self._worst.note(max(0, now - self._due), now)
        self.open()
