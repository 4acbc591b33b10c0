"""The wire between nodes of the simulator: calls in order of virtual time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_DUE = 1 << 62  # ns


class Wire:
    """`due` is the instant (ns) of the first pending call; calls of the same instant keep their order."""

    def __init__(self) -> None:
        self.due = NOT_DUE
        self._calls: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0

    def call_at(self, instant: int, call: Callable[[int], None]) -> None:
        """Schedule `call`, which is called with the time."""
        self._count += 1
        heappush(self._calls, (instant, self._count, call))
        self.due = self._calls[0][0]

    def deliver(self, now: int) -> None:
        """Make all calls that are due."""
        calls = self._calls
        while calls and calls[0][0] <= now:
            heappop(calls)[2](now)
        self.due = calls[0][0] if calls else NOT_DUE
