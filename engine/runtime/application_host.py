"""Begins and ends the application of a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.producer.producer import Producer

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.node.handlers.application import Application

_SECOND = 1_000_000_000
_LEAST_S = 1.0


class ApplicationHost:
    """What the application of a process gets. `stop` is set when the process is to end.

    Invariant: `failure` is empty unless the application has ended by itself, which sets `stop`.
    """

    def __init__(self, application: Application, settings: Settings, stop: asyncio.Event) -> None:
        self._application, self._settings, self._stop = application, settings, stop
        self.failure = ""

    @property
    def start_timeout_s(self) -> float:
        return self._settings.start_timeout

    def make_producer(self) -> Producer:
        return Producer(settings=self._settings)

    def on_end(self, reason: str) -> None:
        self.failure = reason
        self._stop.set()

    async def begin(self) -> bool:
        """Begin the application. Returns False if `stop` was set before it had begun. Raises EvenlaneError."""
        beginning = asyncio.create_task(self._application.begin(self), name="application begins")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if beginning.done():
                beginning.result()
            return beginning.done()
        finally:
            for task in (beginning, stopping):
                task.cancel()
            await asyncio.gather(beginning, stopping, return_exceptions=True)

    async def end(self, stopped_at: int | None) -> None:
        """End the application within what is left of `drain_grace`; `stopped_at` (monotonic ns) is when the process was
        asked to end. Raises EvenlaneError.
        """
        used_s = 0.0 if stopped_at is None else (now_ns() - stopped_at) / _SECOND
        await self._application.end(max(_LEAST_S, self._settings.drain_grace - used_s))
