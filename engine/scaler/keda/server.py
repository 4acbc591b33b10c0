"""The gRPC server for KEDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from evenlane.engine.errors import PortUnavailable
from evenlane.engine.scaler.keda.service import ExternalScaler

if TYPE_CHECKING:
    from evenlane.engine.scaler.recommendation import Recommendations

_CLOSE_S = 1.0


class KedaServer:
    """Serves on `listen`, which is `HOST:PORT`: call `open`, then `close`. `address` has the real port.

    The nodes of a machine, such as those of `--processes N`, share the port: any of them answers the same.
    """

    def __init__(self, listen: str, env: str, recommendations: Recommendations) -> None:
        self._listen, self._scaler = listen, ExternalScaler(env, recommendations)
        self._server: Any = None
        self.address = ""

    async def open(self) -> None:
        """Open. Raises PortUnavailable."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
        self._server.add_generic_rpc_handlers((self._scaler.handlers(),))
        try:
            port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise PortUnavailable(
                f"scaling_listen: can't listen on {self._listen} for KEDA: is the port used?"
            ) from error
        await self._server.start()
        self.address = f"{self._listen.rpartition(':')[0]}:{port}"

    async def close(self) -> None:
        """Close. No effect if never opened."""
        if self._server is not None:
            await self._server.stop(_CLOSE_S)
