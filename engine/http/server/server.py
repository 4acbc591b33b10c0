"""The HTTP server of a node, in the node's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from evenlane.engine.http.server.idle_timeout import IdleTimeout
from evenlane.engine.http.server.listen import listen

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable, Iterator

_log = structlog.get_logger(__name__)

_FAREWELL_S = 1  # time limit for running requests at shutdown


@dataclass(frozen=True, slots=True)
class ServerTuning:
    """Limits of the server. Connections beyond `connections` get 503. A connection without a request, or whose client
    doesn't read the answer, is closed after the given seconds.
    """

    connections: int = 256
    asks_within_s: float = IdleTimeout.asks_within_s
    takes_within_s: float = 20.0


class HttpServer:
    """Serves `app` (ASGI) on `host`:`port`; port 0 is any free one. Call `open`, then `close`, which first calls
    `on_ending` to end requests that would never end on their own. With `tls`, it serves HTTPS only.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        on_ending: Callable[[], Awaitable[None]] | None = None,
        tuning: ServerTuning = ServerTuning(),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host, self._port, self._on_ending, self._tuning = host, port, on_ending, tuning
        self._scheme = "http" if tls is None else "https"
        self._server = _Server(
            uvicorn.Config(
                app, loop="none", http=IdleTimeout.within(tuning.asks_within_s), ws="none", lifespan="off",
                interface="asgi3", log_config=None, log_level="warning", access_log=False, server_header=False,
                proxy_headers=False, timeout_graceful_shutdown=_FAREWELL_S, limit_concurrency=tuning.connections,
            ),
            tls,
            tuning.asks_within_s,
        )  # fmt: skip
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def open(self) -> None:
        """Start serving. `address` is then the server's URL. Raises PortUnavailable."""
        listener = await listen(self._host, self._port, self._tuning.takes_within_s)
        host, port = listener.getsockname()[:2]
        self.address = f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"
        self._serving = asyncio.create_task(self._server.serve([listener]), name="http")
        self._serving.add_done_callback(_on_end)

    async def close(self) -> None:
        """Stop serving. No effect if never opened."""
        if self._serving is None:
            return
        if self._on_ending is not None:
            await self._on_ending()
        self._server.should_exit = True
        await asyncio.gather(self._serving, return_exceptions=True)
        self._serving = None


def _on_end(serving: asyncio.Task[None]) -> None:
    """Log a failure of the server; messages are handled without it."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        _log.error("HTTP is served no more", exc_info=error)


class _Server(uvicorn.Server):
    """A server that leaves signals to the node, and gives each client a limited time for its TLS handshake."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None, handshake_s: float) -> None:
        super().__init__(config)
        self._tls, self._handshake_s = tls, handshake_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for each in sockets or []:
            # uvicorn would leave asyncio's limits, 60 s for the handshake and 30 s for its end.
            server = await asyncio.get_running_loop().create_server(
                self._make_protocol,
                sock=each,
                ssl=self._tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=_FAREWELL_S,
            )
            self.servers.append(server)

    def _make_protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
