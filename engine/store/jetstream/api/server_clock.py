"""Estimates the server's clock from its responses."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.store.jetstream.api.responses import await_call
from evenlane.engine.store.jetstream.api.values import StreamInfo

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.client.connection import Connection

_READINGS = 4  # of the server's clock, one per minute


class ServerClock:
    """The server's time in a response, less our time of receiving it. A reading is too low by the response's travel
    time, and never too high, so nothing is due early. The highest of the last readings is the best. Without a reading,
    this machine's clock counts.
    """

    def __init__(self) -> None:
        self.offset = time.time_ns() - now_ns()  # server's unix ns minus our monotonic ns
        self._readings: deque[int] = deque(maxlen=_READINGS)

    async def begin(self, connection: Connection, stream: str) -> StreamInfo | None:
        """Take the initial readings, unless that was done. Returns and raises as `read` does."""
        info = None
        for _ in range(_READINGS - len(self._readings)):
            info = await self.read(connection, stream)
        return info

    async def read(self, connection: Connection, stream: str) -> StreamInfo:
        """Take one more reading, from a request for an existing stream's info, which is returned. Raises
        Lost, Refused.
        """
        info = await await_call(connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        if info.now:
            self._readings.append(info.now - now_ns())
            self.offset = max(self._readings)
        return info
