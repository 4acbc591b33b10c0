"""The HTTP client of pushes: one request per call, and no shared limit through which one endpoint could
hold up others.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiohttp

from evenlane.engine.errors import ConfigError
from evenlane.engine.node.push.resolver import Resolver
from evenlane.engine.node.push.response import PushFailed, PushResponse
from evenlane.engine.node.push.sockets import PrivateAddress, Sockets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from yarl import URL

MOST_ANSWER = 16_384
"""The most bytes of a response body that are read; then the connection is closed."""

_KEPT_S = 4.0  # how long idle connections are kept; many servers close theirs after 5 s
_LARGE = 2**20  # bytes; larger bodies are sent in pieces
_GONE = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


@dataclass(frozen=True, slots=True)
class PushTuning:
    """Values that tests change; nodes use the defaults."""

    kept: int = 256
    """Connections beyond which connections are closed after their request."""
    rest_s: float = 1.0
    """How long to wait for the body of a response whose status is known."""


DEFAULT = PushTuning()


class Client:
    """Connections aren't limited, neither per host nor in total, because a limit would make other endpoints wait; the
    node starts no more than its `concurrency`. Idle connections are kept for 4 s, and up to 256 of them.
    """

    def __init__(self, *, private: bool, context: ssl.SSLContext, tuning: PushTuning = DEFAULT) -> None:
        self._tuning = tuning
        self._sockets = Sockets(private=private)
        self._resolver = Resolver()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=0, keepalive_timeout=_KEPT_S, ssl=context, resolver=self._resolver,
                socket_factory=self._sockets,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=MOST_ANSWER,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
            trace_configs=[_build_tracing()],
            trust_env=False,  # a proxy would connect where it likes
        )  # fmt: skip

    async def post(self, url: URL, headers: dict[str, str], body: bytes, within: float, where: str) -> PushResponse:
        """POST a message. `within` (s) is the time from the DNS lookup to the status. Raises PushFailed."""
        try:
            async with asyncio.timeout(within):
                response = await self._send(url, headers, body)
        except TimeoutError:
            raise PushFailed(f"no answer from {where} within {within:g} s", is_outage=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PushFailed(f"{_describe(error)}: {where}", is_outage=True) from error
        try:
            start = await _start_of(response, self._tuning.rest_s)
        finally:
            response.close()  # no effect if the body was read to its end: the connection is back in the pool
        return PushResponse(response.status, response.headers.get("Retry-After"), start)

    async def _send(self, url: URL, headers: dict[str, str], body: bytes) -> aiohttp.ClientResponse:
        """Retry if a kept connection was closed by the other side, which may happen at the very moment of its use."""
        while True:
            seen = SimpleNamespace(reused=False)
            try:
                return await self._send_once(url, headers, body, seen)
            except _GONE:
                if not seen.reused:
                    raise

    async def _send_once(
        self, url: URL, headers: dict[str, str], body: bytes, seen: SimpleNamespace
    ) -> aiohttp.ClientResponse:
        if self._sockets.count >= self._tuning.kept:
            headers = {**headers, "connection": "close"}
        data = body if len(body) < _LARGE else BytesIO(body)
        return await self._session.post(url, data=data, headers=headers, allow_redirects=False, trace_request_ctx=seen)

    async def close(self) -> None:
        await self._session.close()
        await self._resolver.close()


async def _start_of(response: aiohttp.ClientResponse, within_s: float) -> bytes:
    """The part of the body that arrives soon; errors in it are ignored."""
    read = bytearray()
    with suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(within_s):
            async for piece in response.content.iter_any():
                read += piece
                if len(read) > MOST_ANSWER:
                    break
    return bytes(read[:MOST_ANSWER])


def _build_tracing() -> aiohttp.TraceConfig:
    tracing = aiohttp.TraceConfig()

    async def on_reused(_session: object, context: SimpleNamespace, _params: object) -> None:
        context.trace_request_ctx.reused = True

    tracing.on_connection_reuseconn.append(on_reused)
    return tracing


def tls(ca: Path | None) -> ssl.SSLContext:
    """A context that trusts the system's authorities and those in `ca`. Raises ConfigError."""
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(f"push_ca: {ca} contains no readable certificates in PEM: {error}") from error
    return context


def _describe(error: Exception) -> str:
    """The error in words; none of them reveals more than host and port."""
    for kind, words in _WORDS:
        if isinstance(error, kind):
            return words(error)
    return f"the request failed ({type(error).__name__})"


def _of_connector(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error.os_error, PrivateAddress):
        return str(error.os_error)
    return f"no connection ({error.os_error.strerror or error.os_error})"


def _of_tls(error: Exception) -> str:
    return str(getattr(error, "verify_message", None) or getattr(error, "reason", None) or error)


# The first match counts: some are subclasses of later ones.
_WORDS: tuple[tuple[type[Exception], Callable[[Any], str]], ...] = (
    (
        aiohttp.ClientConnectorCertificateError,
        lambda e: f"the certificate is not trusted ({_of_tls(e.certificate_error)})",
    ),
    (aiohttp.ClientConnectorDNSError, lambda e: f"{e.host} was not found ({e.os_error.strerror or e.os_error})"),
    (aiohttp.ClientConnectorSSLError, lambda e: f"no TLS connection ({_of_tls(e.os_error)})"),
    (aiohttp.ClientConnectorError, _of_connector),
    (aiohttp.ServerDisconnectedError, lambda _: "the connection was closed without an answer"),
    (aiohttp.ClientResponseError, lambda e: f"the answer isn't HTTP ({(e.message or 'nothing').splitlines()[0][:80]})"),
    (OSError, lambda e: f"the connection broke ({e.strerror or type(e).__name__})"),
)
