"""Chooses and checks loopback ports."""

import random
import socket
from pathlib import Path

from evenlane.engine.base.tcp_listen import bind_tcp
from evenlane.engine.errors import ConfigError, PortUnavailable

HOST = "127.0.0.1"
_LOWEST = 10_240
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 1000


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    try:
        _bind(port, "port")
    except PortUnavailable:
        return False
    return True


def free_port() -> int:
    """Return a port that is free now; it may be taken before the caller listens on it. Raises PortUnavailable.

    The port is below the range from which the kernel takes the ports of outgoing connections. Such a connection could
    occupy the port while a killed server is down, and a client that keeps retrying could even connect to itself.
    """
    highest = _first_ephemeral() - 1
    draw = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = draw.randint(min(_LOWEST, highest), highest)
        if is_free(port):
            return port
    raise PortUnavailable(f"no free port found on {HOST} below {highest + 1}: stop a process that listens there")


def check_port(port: int, flag: str) -> None:
    """Raise PortUnavailable unless a server could listen on `port` now, and ConfigError if it is no valid port. `flag`
    is the option with which a user chose it.
    """
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port {port} of {flag} is out of range: choose one of 1 to 65535, or leave it out")
    _bind(port, flag)


def _bind(port: int, flag: str) -> None:
    bind_tcp(socket.AF_INET, (HOST, port), flag).close()


def _first_ephemeral() -> int:
    first = int(_EPHEMERAL.read_text().split()[0])
    return first if first > 1024 else 65_536
