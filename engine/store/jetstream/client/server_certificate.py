"""Finds out when a NATS server's certificate has expired, for the error of a failed connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evenlane.engine.base.certificates import expiry_of_der

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_ANSWER_S = 2.0
_PORT = 4222


async def describe_expiry(servers: Sequence[str]) -> str:
    """Return a clause about the first of these servers whose certificate has expired."""
    for url in servers:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORT
        try:
            async with asyncio.timeout(_ANSWER_S):
                expiry = await _read_expiry(host, port)
        except (OSError, TimeoutError, EOFError):
            continue
        if expiry is not None:
            return f"the certificate of {host}:{port} expired on {expiry:%Y-%m-%d %H:%M} UTC"
    return "its certificate has expired"


async def _read_expiry(host: str, port: int) -> datetime | None:
    """Shake hands without verification, and send nothing. Raises OSError, EOFError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port)
    try:
        await reader.readuntil(b"\n")  # INFO, in clear text
        await writer.start_tls(context, server_hostname=host)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return None if der is None else expiry_of_der(der)
    finally:
        writer.transport.abort()
