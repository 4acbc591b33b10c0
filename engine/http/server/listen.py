"""Opens the port that HTTP is served on."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from evenlane.engine.base.tcp_listen import bind_tcp
from evenlane.engine.errors import PortUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAG = "--http-port"
_WAITING = 128  # connections that aren't accepted yet


async def listen(host: str, port: int, takes_within_s: float) -> socket.socket:
    """Return a listening socket; port 0 is any free one. Clients that don't read their answer for `takes_within_s`
    seconds are disconnected. Raises PortUnavailable.
    """
    listener = await _bind(host, port)
    try:
        # The kernel's timeout includes data that uvicorn has already written, and connections that it has closed.
        # Connections inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(takes_within_s * 1_000))
        listener.listen(_WAITING)
    except OSError as error:  # another process was quicker
        listener.close()
        raise PortUnavailable(f"port {port} on {host} can't be served: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def check(host: str, ports: Sequence[int]) -> None:
    """Raise PortUnavailable unless all these ports could be served now."""
    for port in ports:
        try:
            (await _bind(host, port)).close()
        except PortUnavailable as error:
            if len(ports) == 1:
                raise
            raise PortUnavailable(
                f"{error}; {_FLAG} {ports[0]} takes {ports[0]} to {ports[-1]}, one per process"
            ) from error


async def _bind(host: str, port: int) -> socket.socket:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise PortUnavailable(f"port {port} on {host} can't be served: {error.strerror}") from error
    family, *_, address = found[0]
    return bind_tcp(family, address, _FLAG, host)
