"""A timer for deferred work: it fires at the earliest instant that was set."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MILLISECOND = 1_000_000


class WakeTimer:
    """Instants are monotonic ns. The loop's timers have millisecond resolution, so it fires up to 1 ms late, and never
    early.
    """

    def __init__(self, on_wake: Callable[[], None]) -> None:
        self._on_wake = on_wake
        self._at = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: int | None, now: int) -> None:
        """Fire at `at`, unless the timer will fire earlier; None has no effect."""
        if at is None or (self._timer is not None and self._at <= at):
            return
        self.cancel()
        self._at = at
        wait = ceil((at - now) / _MILLISECOND) / 1000
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._on_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._on_wake()
