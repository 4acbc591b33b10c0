"""Time slices: keep handlers that never suspend from starving the event loop's reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from evenlane.engine.node.handlers.ack_deadline import AckDeadline
    from evenlane.engine.node.signals.work_signal import WorkSignal

_BLOCK, _LONG_BLOCK = 100_000_000, 1_000_000_000  # ns
_ITERATIONS_AFTER_BLOCK = 5  # turns of the event loop
_PAUSE_AFTER_LONG_S = 0.1
_SLICE = 5_000_000  # ns; handling ready messages before reading more keeps memory warm and small


class LoopSlice:
    """One slice of each turn of the event loop, shared by all workers. It ends at `end` (monotonic ns).

    Invariant: while `_renewal_due` is set, a callback that begins the next slice is scheduled.
    """

    def __init__(self, signal: WorkSignal, deadline: AckDeadline) -> None:
        self._signal, self._deadline = signal, deadline
        self.end = 0
        self._renewal_due = False

    async def wait(self) -> None:
        """Wait for work. The first worker after an idle period begins a slice."""
        await self._signal.wait()
        if not self._renewal_due:
            self.end = now_ns() + _SLICE

    async def renew(self, late: int) -> None:
        """Wait for the next slice; this one ended `late` ns ago.

        One worker continues in the next turn, and wakes others if there is work for them; the rest wait. After a
        handler that blocked the event loop, this worker lets some turns pass first: one turn reads the bytes that have
        arrived meanwhile, and a later one adds their messages to the queues. Otherwise the next handler that blocks
        would start before these messages are queued.
        """
        if self._renewal_due:
            await self.wait()
            return
        self._renewal_due = True
        loop = asyncio.get_running_loop()
        if now_ns() - self._deadline.looked_at > _LONG_BLOCK:  # feeds have to ask the server for more, too
            loop.call_later(_PAUSE_AFTER_LONG_S, self._begin_after_pause)
            await self.wait()
            return
        iterations = _ITERATIONS_AFTER_BLOCK if late > _BLOCK else 1
        loop.call_soon(self._begin, iterations)
        for _ in range(iterations):
            await asyncio.sleep(0)

    def _begin_after_pause(self) -> None:
        self._begin(1)
        self._signal.notify()

    def _begin(self, iterations: int) -> None:
        """Begin a slice after this many turns."""
        if iterations > 1:
            asyncio.get_running_loop().call_soon(self._begin, iterations - 1)
            return
        self._renewal_due = False
        self.end = now_ns() + _SLICE
