"""The server's clock, as read from its answers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.store.jetstream.api.responses import asked
from evenlane.engine.store.jetstream.api.values import StreamInfo

if TYPE_CHECKING:
    from evenlane.engine.store.jetstream.client.connection import Connection

_READINGS = 4  # of the server's clock, one a minute


class ServerClock:
    """What the server says when it answers, less when we hear it: too low by the answer's way, and never too high,
    so that nothing is due early. The highest of the last readings is the best.
    """

    def __init__(self) -> None:
        self.offset = 0  # server's unix ns minus our monotonic ns
        self._readings: deque[int] = deque(maxlen=_READINGS)

    async def begin(self, connection: Connection, stream: str) -> StreamInfo | None:
        """Read it as often as is good for a start, unless that was done; as `read`. Raises Lost, Refused."""
        info = None
        for _ in range(_READINGS - len(self._readings)):
            info = await self.read(connection, stream)
        return info

    async def read(self, connection: Connection, stream: str) -> StreamInfo:
        """Read it once more, by asking for a stream that is there; what was said of that. Raises Lost, Refused."""
        info = await asked(connection.api_as(StreamInfo, f"STREAM.INFO.{stream}"))
        if info.now:
            self._readings.append(info.now - now_ns())
            self.offset = max(self._readings)
        return info
