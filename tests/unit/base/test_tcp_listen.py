"""Binding a TCP port, or refusing it in one sentence."""

import socket

import pytest

from evenlane.engine.base.tcp_listen import bind_tcp
from evenlane.engine.errors import PortUnavailable


def test_unsupported_address_family_is_refused():
    """As `http_host = "::1"` on a machine without IPv6."""
    with pytest.raises(PortUnavailable, match=r"^port 8080 on ::1 can't be served: Address family not supported"):
        bind_tcp(socket.AF_APPLETALK, ("::1", 8080), "--http-port")


def test_taken_port_is_refused():
    with bind_tcp(socket.AF_INET, ("127.0.0.1", 0), "--port") as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PortUnavailable, match=f"^port {port} on here is in use: choose another --port, or stop"):
            bind_tcp(socket.AF_INET, ("127.0.0.1", port), "--port", "here")
