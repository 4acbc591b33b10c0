"""Says that a message may be able to start; idle workers wait for it."""

from __future__ import annotations

import asyncio


class WorkSignal:
    """Wakes one waiting worker at a time: it looks for work, and wakes the next one if it finds some.

    Invariants: `exhausted` is True only while nothing was notified since the source last had nothing; so it is False
    while a unit of the in-flight gate may start. `_waking` is True from the moment that a worker is woken until it
    runs, so that a burst of notifications wakes one worker, not all.
    """

    def __init__(self) -> None:
        self.exhausted = False
        self.waiting: list[asyncio.Future[None]] = []  # of idle workers; one list for good, so that it can be bound
        self._waking = False
        self._closed = False

    def notify(self) -> None:
        """There may be a message that can start."""
        self.exhausted = False
        self.wake_one()

    def wake_one(self) -> None:
        if self.waiting and not self._waking and not self._closed:
            self._waking = True
            waiting = self.waiting.pop()
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self) -> None:
        """Wait until this worker is woken. One at a time, the last to come first: its memory is warm."""
        waiting = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:  # no other worker must wait for this one to wake it
            if waiting in self.waiting:
                self.waiting.remove(waiting)
            raise
        finally:
            self._waking = False

    def close(self) -> None:
        """Wake all that wait; from now on nobody is woken by `notify`."""
        self._closed = True
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)
