"""A TCP port, or one sentence."""

import socket

import pytest

from evenlane.engine.base.tcp_listen import bound
from evenlane.engine.errors import PortUnusable


def test_a_family_that_the_machine_does_not_have():
    """Bad input: http_host = "::1" where there is no IPv6."""
    with pytest.raises(PortUnusable, match=r"^port 8080 on ::1 can't be served: Address family not supported"):
        bound(socket.AF_APPLETALK, ("::1", 8080), "--http-port")


def test_one_that_is_taken():
    with bound(socket.AF_INET, ("127.0.0.1", 0), "--port") as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PortUnusable, match=f"^port {port} on here is taken: choose another --port, or stop"):
            bound(socket.AF_INET, ("127.0.0.1", port), "--port", "here")
