"""Binds a TCP port to listen on, or reports in one sentence why that fails."""

from __future__ import annotations

import errno
import socket
from typing import Any

from evenlane.engine.errors import PortUnavailable

_WHY = {
    errno.EADDRINUSE: "is in use: choose another {flag}, or stop the process that listens there",
    errno.EACCES: "needs privileges: choose a {flag} above 1023",
    errno.EADDRNOTAVAIL: "can't be served, as this machine has no such address: see the setting http_host",
}


def bind_tcp(
    family: socket.AddressFamily, address: tuple[Any, ...], flag: str, where: str | None = None
) -> socket.socket:
    """Return a bound socket that doesn't listen yet (TIME_WAIT doesn't prevent this). `flag` is the option with which a
    user chose `address`, and `where` the host as the user gave it. Raises PortUnavailable.
    """
    unbound: socket.socket | None = None
    try:
        unbound = socket.socket(family, socket.SOCK_STREAM)
        unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        unbound.bind(address)
    except OSError as error:
        if unbound is not None:
            unbound.close()
        why = _WHY.get(error.errno or 0, f"can't be served: {error.strerror}").format(flag=flag)
        raise PortUnavailable(f"port {address[1]} on {where or address[0]} {why}") from error
    return unbound
