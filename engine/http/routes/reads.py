"""Routes that need read access: the status page and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response

from evenlane.engine.base.durations import parse_duration
from evenlane.engine.http.routes import params
from evenlane.engine.http.static_files import StaticFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from evenlane.engine.http.live_feed import Viewer
    from evenlane.engine.http.ports import DeadLetters, NodeApi

_PING_S = 15  # finds closed connections even without new events


class ReadRoutes:
    """Routes with the scope `read`."""

    def __init__(self, node: NodeApi) -> None:
        self._node = node
        self._pages = StaticFiles()

    async def page(self, request: Request) -> Response:
        return self._pages.answer("index.html", request)

    async def static(self, request: Request) -> Response:
        return self._pages.answer(request.path_params["path"], request)

    async def overview(self, request: Request) -> Response:
        subscription = params.subscription(params.parse_params(request, {"subscription"}))
        return Response(await self._node.overview(subscription), media_type="application/json")

    async def events(self, request: Request) -> Response:
        params.parse_params(request, ())
        return ViewerStream(self._node.watching.watch())

    async def why(self, request: Request) -> Response:
        given = params.parse_params(request, {"positions", "priority", "subscription", "within"})
        within = given.get("within")
        seconds = None if within is None else parse_duration(within)
        positions = params.flag(given, "positions")
        project, priority = request.path_params["project"], given.get("priority")
        subscription = params.subscription(given)
        found = await self._node.why(project, priority, seconds, positions=positions, subscription=subscription)
        return JSONResponse(found)

    async def dead_letters(self, request: Request) -> Response:
        given = params.parse_params(request, {"error", "limit", "subscription"})
        limit, error = params.limit(given), params.error_key(given)
        letters = await self._node.dead_letters(params.subscription(given))
        return JSONResponse(await letters.list(request.path_params["project"], limit, error))

    async def errors(self, request: Request) -> Response:
        letters = await self._letters(request)
        return JSONResponse(await letters.errors(request.path_params["project"]))

    async def dead_letter(self, request: Request) -> Response:
        letters = await self._letters(request)
        sequence = params.sequence(request.path_params["seq"])
        return JSONResponse(await letters.show(request.path_params["project"], sequence))

    async def _letters(self, request: Request) -> DeadLetters:
        return await self._node.dead_letters(params.subscription(params.parse_params(request, {"subscription"})))


class ViewerStream(EventSourceResponse):
    """An event stream whose viewer leaves however the request ends, even before the first event."""

    def __init__(self, viewer: Viewer) -> None:
        super().__init__(_events(viewer), ping=_PING_S)
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._viewer.leave()


async def _events(viewer: Viewer) -> AsyncIterator[bytes]:
    async for update in viewer.looks():
        yield update.event
