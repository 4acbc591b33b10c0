"""Reads the body of an HTTP answer from a server that may not be the one it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


async def read_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read the body, which may come in parts. Of one with more than `most` bytes, return the first `most`: nobody needs
    the rest, however long it is. Raises aiohttp.ClientError.
    """
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) >= most:
            break
    return bytes(body[:most])
