"""Finds out when the certificate of the Kubernetes API has expired, for the error of a failed request."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from evenlane.engine.base import tls

_ANSWER_S = 2.0
_PORT = 443


async def describe_expiry(api: str) -> str:
    """Return a clause about the certificate of this address, after a verification that found an expired one."""
    parts = urlsplit(api)
    date = await _read_expiry(parts.hostname or "", parts.port or _PORT)
    if date is None:  # it is another one of the chain, or the server is away now
        return f"a certificate of the Kubernetes API at {api}, or of its authorities, has expired"
    return f"the certificate of the Kubernetes API at {api} expired on {date}"


async def _read_expiry(host: str, port: int) -> str | None:
    """Shake hands without verification, and send nothing. Return the date if the certificate has expired."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return None
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return None if der is None else tls.expired_on(ssl.DER_cert_to_PEM_cert(der))
