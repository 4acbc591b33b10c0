"""The port that HTTP is served on."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from evenlane.engine.base.tcp_listen import bind_tcp
from evenlane.engine.errors import PortUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAG = "--http-port"
_WAITING = 128  # connections that nobody has accepted yet


async def listening(host: str, port: int, takes_within_s: float) -> socket.socket:
    """Listens already; port 0 is any free one. Who takes nothing of its answer for so long is cut off. Raises
    PortUnavailable.
    """
    listener = await _bound(host, port)
    try:
        # The kernel counts also what uvicorn has written already, and for connections that it has closed; each
        # connection inherits it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(takes_within_s * 1_000))
        listener.listen(_WAITING)
    except OSError as error:  # another was quicker
        listener.close()
        raise PortUnavailable(f"port {port} on {host} can't be served: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def check(host: str, ports: Sequence[int]) -> None:
    """Raises PortUnusable unless all these could be served now."""
    for port in ports:
        try:
            (await _bound(host, port)).close()
        except PortUnavailable as error:
            if len(ports) == 1:
                raise
            raise PortUnavailable(
                f"{error}; {_FLAG} {ports[0]} takes {ports[0]} to {ports[-1]}, one a process"
            ) from error


async def _bound(host: str, port: int) -> socket.socket:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise PortUnavailable(f"port {port} on {host} can't be served: {error.strerror}") from error
    family, *_, address = found[0]
    return bind_tcp(family, address, _FLAG, host)
