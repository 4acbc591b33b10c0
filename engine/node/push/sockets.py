"""The sockets of pushes: each is created for an address that may be connected to, and counted."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from weakref import WeakSet

from evenlane.engine.node.push.addresses import is_public

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType


# Bytes; receive buffer of the kernel. Responses are short; one that isn't must not keep the event loop busy.
_RECEIVED = 16_384


class PrivateAddress(OSError):
    """The address isn't public, and this node pushes only to public ones."""


class _Counted(socket.socket):
    """Reports its end; garbage collection would depend on others' references."""

    among: WeakSet[socket.socket]

    def close(self) -> None:
        super().close()
        self.among.discard(self)


class Sockets:
    """Called by the connector with the very address that it connects to next, whether it comes from the URL or from
    name resolution.
    """

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._open: WeakSet[socket.socket] = WeakSet()

    def __call__(self, info: AddrInfoType) -> socket.socket:
        """Raises PrivateAddress, OSError."""
        family, kind, protocol, _canonical, address = info
        host = str(address[0])
        if not self._private and not is_public(host):
            raise PrivateAddress(f"{host} is not a public address, and this node pushes only to those (push_private)")
        made = _Counted(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
        made.among = self._open
        self._open.add(made)
        return made

    @property
    def count(self) -> int:
        """The number of sockets, in use or kept for the next push."""
        return len(self._open)
