"""Signals that a message may be able to start; idle workers wait for it."""

from __future__ import annotations

import asyncio


class WorkSignal:
    """Wakes one waiting worker at a time: it looks for work, and wakes the next one if it finds some.

    Invariants:
    - `exhausted` is set only if nothing was notified since the source last had no work. It is therefore not set while a
      unit of the in-flight gate may start.
    - `waking` is set from the moment a worker is woken until it runs, so that a burst of notifications wakes one
      worker, not all.
    """

    def __init__(self) -> None:
        self.exhausted = False
        self.waiting: list[asyncio.Future[None]] = []  # of idle workers; always the same list, so that it can be bound
        self.waking = False
        self._closed = False

    def notify(self) -> None:
        """A message may be able to start."""
        self.exhausted = False
        self.wake_one()

    def wake_one(self) -> None:
        if self.waiting and not self.waking and not self._closed:
            self.waking = True
            waiting = self.waiting.pop()
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self) -> None:
        """Wait until this worker is woken. The last to wait is woken first, because its memory is warm."""
        waiting = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:  # a worker that was cancelled must not take part in the chain of wake-ups
            if waiting in self.waiting:
                self.waiting.remove(waiting)
            raise
        finally:
            self.waking = False

    def close(self) -> None:
        """Wake all waiting workers. From now on `notify` wakes none."""
        self._closed = True
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)
