"""The HTTP server of a node, in the node's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from evenlane.engine.http.server.idle_timeout import IdleTimeout
from evenlane.engine.http.server.listen import listening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_log = structlog.get_logger(__name__)

_FAREWELL_S = 1  # what is being answered when the node ends has so long


@dataclass(frozen=True, slots=True)
class Tuning:
    """Further connections get 503. One on which nothing is asked, or nothing of the answer is taken, is closed."""

    connections: int = 256
    asks_within_s: float = IdleTimeout.asks_within_s
    takes_within_s: float = 20.0


class HttpServer:
    """Serves `app` (ASGI) on `host`:`port`; port 0 is any free one. `open`, then `close`: `ending` has it end first
    what would never end by itself.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        ending: Callable[[], Awaitable[None]] | None = None,
        tuning: Tuning = Tuning(),
    ) -> None:
        self._host, self._port, self._ending, self._tuning = host, port, ending, tuning
        self._server = _Server(
            uvicorn.Config(
                app, loop="none", http=IdleTimeout.within(tuning.asks_within_s), ws="none", lifespan="off",
                interface="asgi3", log_config=None, log_level="warning", access_log=False, server_header=False,
                proxy_headers=False, timeout_graceful_shutdown=_FAREWELL_S, limit_concurrency=tuning.connections,
            )
        )  # fmt: skip
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def open(self) -> None:
        """Raises PortUnusable. From then on `address` is its URL."""
        listener = await listening(self._host, self._port, self._tuning.takes_within_s)
        host, port = listener.getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._serving = asyncio.create_task(self._server.serve([listener]), name="http")
        self._serving.add_done_callback(_told)

    async def close(self) -> None:
        """Harmless when it was never opened."""
        if self._serving is None:
            return
        if self._ending is not None:
            await self._ending()
        self._server.should_exit = True
        await asyncio.gather(self._serving, return_exceptions=True)
        self._serving = None


def _told(serving: asyncio.Task[None]) -> None:
    """Messages are handled without it; but somebody should know."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        _log.error("HTTP is served no more", exc_info=error)


class _Server(uvicorn.Server):
    """Signals are the node's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
