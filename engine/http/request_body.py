"""Request bodies, read in chunks and within limits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from evenlane.engine.errors import EvenlaneError, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

_BEGUN, _ENDED = "evenlane.body_begun", "evenlane.body_ended"  # in a request's scope
BODY_IDLE_S = 20.0  # without any data
_SMALL = 65_536  # bytes


class RequestTimeout(EvenlaneError):
    """The client sends no more of the body that it has announced."""


class BodyWaits:
    """The waits of all requests for more of their bodies. `reason` is why they end, once `end` was called.

    Invariant: `_limits` has the time limits of the running waits.
    """

    def __init__(self, reason: str = "") -> None:
        self._reason = reason
        self._is_over = False
        self._limits: set[asyncio.Timeout] = set()

    def check(self) -> None:
        """Raise EvenlaneError once the waits have ended."""
        if self._is_over:
            raise EvenlaneError(self._reason)

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Limit a wait. Raises TimeoutError, which `end` causes, too."""
        async with asyncio.timeout(seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def end(self) -> None:
        """End all waits, and prevent further ones."""
        self._is_over = True
        for each in self._limits:
            each.reschedule(0)


class RequestBody:
    """The body of one request. `what` names it in errors. `announced` is its length in bytes, None if the client
    doesn't say.
    """

    def __init__(self, request: Request, most: int, what: str, waits: BodyWaits, idle_s: float) -> None:
        """Raise PayloadTooLarge if the request announces more than `most` bytes."""
        self._request, self._most, self._what = request, most, what
        self._waits, self._idle_s = waits, idle_s
        self.announced = announced = _announced(request)
        if announced is not None and announced > most:
            raise PayloadTooLarge(f"the body of this request has {announced:,} bytes: {what} can have at most {most:,}")

    async def read(self) -> bytes:
        """Return the whole body. Raises EvenlaneError."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises PayloadTooLarge, RequestTimeout, and EvenlaneError if the client has
        gone.
        """
        size = 0
        self._request.scope[_BEGUN] = True
        stream = self._request.stream()
        while True:
            self._waits.check()
            chunk = await self._next(stream)
            if chunk is None:
                return
            size += len(chunk)
            if size > self._most:
                raise PayloadTooLarge(
                    f"the body of this request is too long: {self._what} can have at most {self._most:,}"
                )
            yield chunk

    async def _next(self, stream: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, None at the end."""
        try:
            async with self._waits.limit(self._idle_s):
                return await anext(stream)
        except StopAsyncIteration:
            self._request.scope[_ENDED] = True
            return None
        except TimeoutError:
            self._waits.check()
            raise RequestTimeout(
                f"the body of this request is incomplete, and for {self._idle_s:g} s nothing more has arrived"
            ) from None
        except ClientDisconnect:
            self._request.scope[_ENDED] = True
            raise EvenlaneError("the client has closed the connection before the end of its request") from None


def content_type(request: Request) -> str:
    """Return the type of the body in lower case, without parameters such as `charset`."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class Unread(Enum):
    """What of a request's body nobody has read."""

    NOTHING = auto()  # or so little that the server may read it, and keep the connection
    UNSENT = auto()  # all of it: the client has asked whether it may send it, and nobody has said yes
    ARRIVING = auto()  # the client may still be sending it


def unread_of(request: Request) -> Unread:
    headers, scope = request.headers, request.scope
    if scope.get(_ENDED, False):
        return Unread.NOTHING
    if scope.get(_BEGUN, False):
        return Unread.ARRIVING
    if "expect" in headers:
        return Unread.UNSENT
    is_large = "transfer-encoding" in headers or (_announced(request) or 0) > _SMALL
    return Unread.ARRIVING if is_large else Unread.NOTHING


def _announced(request: Request) -> int | None:
    """Return the length that the client announces; None for a body in chunks. The server has checked the number."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdigit() else None
