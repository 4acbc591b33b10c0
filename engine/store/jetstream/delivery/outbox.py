"""Writes commands of the NATS protocol to a client's buffer; nats-py flushes it once per turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from nats.aio.client import Client

from evenlane.engine.core.ports import Disconnected

_CONNECTED: Final = Client.CONNECTED  # (compared first, since the property `is_connected` is slow)


class Outbox:
    """The outgoing half of a connection. `publish` buffers nothing while there is no server."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body that the server takes at most."""
        limit: int = self._client._max_payload
        return limit

    def publish(self, subject: bytes, body: bytes, headers: bytes, reply: bytes) -> None:
        """Queue one publish. Raises Disconnected if there is no connection."""
        client = self._client
        if client._status != _CONNECTED and not client.is_connected:
            raise Disconnected("there is no connection to NATS at the moment")
        if headers:
            sizes = b" %d %d\r\n" % (len(headers), len(headers) + len(body))
            command = b"".join((b"HPUB ", subject, b" ", reply, sizes, headers, body, b"\r\n"))
        else:
            command = b"".join((b"PUB ", subject, b" ", reply, b" %d\r\n" % len(body), body, b"\r\n"))
        self._append(client, command)

    def write(self, line: bytes) -> None:
        """Queue a control line."""
        self._append(self._client, line)

    def _append(self, client: Any, command: bytes) -> None:
        client._pending.append(command)
        client._pending_data_size += len(command)
        queue = client._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())
