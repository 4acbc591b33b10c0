"""The HTTP server of a node, in the node's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from engine.errors import EvenlaneError
from engine.http.address import url

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = structlog.get_logger(__name__)

_FAREWELL_S = 1  # what is being answered when the node ends has so long
_AT_ONCE = 256  # connections; further ones get 503
_WAITING = 128  # connections that nobody has accepted yet


class PortUnusable(EvenlaneError):
    """Nothing can listen there."""


class HttpServer:
    """Serves `app` (ASGI) on `host`:`port`; port 0 is any free one. `open`, then `close`."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server = _Server(
            uvicorn.Config(
                app, loop="none", http="h11", ws="none", lifespan="off", interface="asgi3", log_config=None,
                log_level="warning", access_log=False, server_header=False, proxy_headers=False,
                timeout_graceful_shutdown=_FAREWELL_S, limit_concurrency=_AT_ONCE,
            )
        )  # fmt: skip
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def open(self) -> None:
        """Raises PortUnusable. From then on `address` is its URL."""
        listening = await _listening(self._host, self._port)
        host, port = listening.getsockname()[:2]
        self.address = url(host, port)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="http")
        self._serving.add_done_callback(_told)

    async def close(self) -> None:
        """Harmless when it was never opened."""
        if self._serving is None:
            return
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


async def _listening(host: str, port: int) -> socket.socket:
    where = f"HTTP port {port} on {host}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, *_, address = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise PortUnusable(f"{where} can't be served: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_WAITING)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise PortUnusable(f"{where} {_WHY.get(error.errno or 0, f'can not be served: {error.strerror}')}") from error
    return listening


_WHY = {
    errno.EADDRINUSE: "is taken: choose another --http-port, or stop what listens there",
    errno.EACCES: "needs privileges: choose an --http-port above 1023",
    errno.EADDRNOTAVAIL: "can't be served, as this machine has no such address: see the setting http_host",
}
