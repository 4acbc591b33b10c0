"""Answers to requests whose body isn't read to its end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from evenlane.engine.http.request_body import Unread, unread_of

if TYPE_CHECKING:
    from http import HTTPStatus

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_SKIMMED = 4 << 20  # bytes
_SKIMMED_S = 1.0


def answer(request: Request, document: dict[str, object], status: HTTPStatus) -> JSONResponse:
    """Answer a request, whose body may not have been read to its end."""
    unread = unread_of(request)
    if unread is Unread.NOTHING:
        return JSONResponse(document, status)
    return EarlyAnswer(document, status, skims=unread is Unread.ARRIVING)


class EarlyAnswer(JSONResponse):
    """Sends an answer, and closes the connection after it.

    A connection that is closed while data arrives is reset, and the client may lose the answer. So what still arrives
    is thrown away first, for a short time and within a limit.
    """

    def __init__(self, document: dict[str, object], status: HTTPStatus, *, skims: bool) -> None:
        super().__init__(document, status, {"connection": "close"})
        self._skims = skims

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        if self._skims:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SKIMMED_S):
                    await _skim(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _skim(receive: Receive) -> None:
    size = 0
    while size < _SKIMMED:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        size += len(message.get("body", b""))
