"""Public routes: health, readiness, metrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from evenlane.engine.http.ports import NodeApi


class HealthRoutes:
    """Routes without access control."""

    def __init__(self, node: NodeApi) -> None:
        self._node = node

    async def health(self, _request: Request) -> Response:
        found = await self._node.health()
        return JSONResponse(found.document(), HTTPStatus.SERVICE_UNAVAILABLE if found.stuck else HTTPStatus.OK)

    async def ready(self, _request: Request) -> Response:
        found = await self._node.readiness()
        status = HTTPStatus.OK if found.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse(found.document(), status)

    async def metrics(self, request: Request) -> Response:
        page = await self._node.metrics(request.headers.get("accept", ""))
        return Response(page.body, headers={"content-type": page.content_type})
