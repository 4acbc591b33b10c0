"""A client that speaks the bare protocol of NATS, and follows no other rule."""

import asyncio
from typing import Self
from urllib.parse import urlsplit


class Stranger:
    """`async with Stranger(url) as stranger: stranger.publish(...); await stranger.flush()`."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)
        await self._reader.readline()
        self._writer.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def publish(self, subject: bytes, block: bytes = b"", body: bytes = b"") -> None:
        """Publish without an acknowledgement. `block` is sent as it is."""
        if block:
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            self._writer.write(b"HPUB %b %b\r\n%b%b\r\n" % (subject, sizes, block, body))
        else:
            self._writer.write(b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body))

    async def flush(self) -> None:
        """Return when the server has read everything. Raises AssertionError if it complains."""
        self._writer.write(b"PING\r\n")
        await self._writer.drain()
        while (line := await self._reader.readline()) != b"PONG\r\n":
            assert line in (b"PING\r\n", b"+OK\r\n"), line
