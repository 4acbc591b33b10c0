"""The HTTP server of an engine, made if its settings want one: what it needs takes a tenth of a second to import."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from evenlane.engine.http.server.server import HttpServer
    from evenlane.engine.telemetry.node_view import NodeView
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)


class Http:
    """`open`, then `close`. `address` is where it serves, None if it doesn't."""

    def __init__(self, view: NodeView, coordination: Coordination) -> None:
        self._view, self._coordination = view, coordination
        self._server: HttpServer | None = None

    @property
    def address(self) -> str | None:
        return self._server.address if self._server is not None else None

    async def open(self) -> None:
        """Raises EvenlaneError if nothing can listen there."""
        settings = self._view.settings
        if settings.http_port is None:
            return
        module = await asyncio.to_thread(import_module, "evenlane.engine.http.factory")
        server: HttpServer = module.server(self._view, self._coordination)
        await server.open()
        self._server = server
        _log.info("serving HTTP", address=server.address)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None
