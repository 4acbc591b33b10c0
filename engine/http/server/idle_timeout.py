"""Closes idle connections, as each takes one of the limited places, and health must stay reachable.

(Connections whose client doesn't read are closed by the kernel, see listen.py.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

_FAREWELL_S = 0.5  # less than uvicorn waits for running requests at shutdown


class IdleTimeout(H11Protocol):
    """Limits the time for a request to arrive: uvicorn limits neither the first one nor an incomplete one."""

    asks_within_s = 5.0  # as long as uvicorn itself keeps a connection after an answer
    _timer: TimerHandle | None = None

    @classmethod
    def within(cls, seconds: float) -> type[Self]:
        """Return a subclass with this limit, a class attribute since uvicorn creates the protocols itself."""
        return cast("type[Self]", type(cls.__name__, (cls,), {"asks_within_s": seconds}))

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_request():
            self._wait_no_more()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Shut down without waiting for clients that don't read."""
        super().shutdown()
        if self.flow.write_paused:
            self.loop.call_later(_FAREWELL_S, self.transport.abort)

    def _is_in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        """Start the timer unless it is running. Further bytes don't restart it, so a client that sends one byte per
        second gets no more time.
        """
        if self._timer is None:
            self._timer = self.loop.call_later(self.asks_within_s, self._give_up)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self._is_in_request():
            self.transport.close()
