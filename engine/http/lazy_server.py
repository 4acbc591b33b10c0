"""HTTP server of an engine, created only if the settings have a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.lazy import Lazy

if TYPE_CHECKING:
    from evenlane.engine.http.server.server import HttpServer
    from evenlane.engine.telemetry.node_view import NodeView
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)


class LazyHttpServer:
    """An HTTP server that may be absent: call `open`, then `close`. `address` is the address served, None
    if none is.
    """

    def __init__(self, view: NodeView, coordination: Coordination) -> None:
        self._view = view
        self._server: Lazy[HttpServer] = Lazy(
            "evenlane.engine.http.factory", lambda factory: factory.server(view, coordination)
        )
        self.address: str | None = None

    async def open(self) -> None:
        """Open the server, if configured. Raises EvenlaneError if its port can't be used."""
        if self._view.settings.http_port is None:
            return
        server = await self._server.get()
        await server.open()
        self.address = server.address
        _log.info("serving HTTP", address=server.address)

    async def close(self) -> None:
        """Close. No effect if never opened."""
        self.address = None
        if self._server.made is not None:
            await self._server.made.close()
