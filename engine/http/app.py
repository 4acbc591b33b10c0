"""The paths that a node serves."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.durations import parse_duration
from engine.errors import ConfigError, EvenlaneError
from engine.http.errors import on_defect, on_http, on_known

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import Request

    from engine.http.readiness import Readiness
    from engine.metrics.exposition import Page


class Node(Protocol):
    """What is asked of the node."""

    def health(self) -> dict[str, Any]: ...

    async def readiness(self) -> Readiness: ...

    async def metrics(self, accept: str) -> Page: ...

    async def why(self, project: str, priority: str | None, within: float | None) -> dict[str, Any]:
        """Raises EvenlaneError."""


def app(node: Node) -> Starlette:
    views = _Views(node)
    return Starlette(
        routes=[
            Route("/healthz", views.health),
            Route("/readyz", views.ready),
            Route("/metrics", views.metrics),
            Route("/api/why/{project}", views.why),
        ],
        exception_handlers={EvenlaneError: on_known, HTTPException: on_http, Exception: on_defect},
    )


class _Views:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def health(self, _request: Request) -> Response:
        return JSONResponse(self._node.health())

    async def ready(self, _request: Request) -> Response:
        found = await self._node.readiness()
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse(found.document(), status)

    async def metrics(self, request: Request) -> Response:
        page = await self._node.metrics(request.headers.get("accept", ""))
        return Response(page.body, headers={"content-type": page.content_type})

    async def why(self, request: Request) -> Response:
        given = _given(request, {"priority", "within"})
        within = given.get("within")
        seconds = None if within is None else parse_duration(within)
        return JSONResponse(await self._node.why(request.path_params["project"], given.get("priority"), seconds))


def _given(request: Request, known: Collection[str]) -> dict[str, str]:
    """What stands behind the question mark. Raises ConfigError for what isn't known, or stands there twice."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise ConfigError(f"there is no parameter {name!r}: there are {', '.join(sorted(known))}")
        if name in given:
            raise ConfigError(f"{name} is given twice")
        given[name] = value
    return given
