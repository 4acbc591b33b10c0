"""Routes that change something: they require the token, even from this machine."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from evenlane.engine.http.routes import params

if TYPE_CHECKING:
    from starlette.requests import Request

    from evenlane.engine.http.ports import NodeApi


class WriteRoutes:
    """Routes with the scope `change`."""

    def __init__(self, node: NodeApi) -> None:
        self._node = node

    async def replay(self, request: Request) -> Response:
        """Replay dead letters. Answers 202 if the replay continues in the background."""
        outcome = await self._node.replay(request.path_params["project"], await params.replay_of(request))
        return JSONResponse(outcome, HTTPStatus.ACCEPTED if outcome["running"] else HTTPStatus.OK)

    async def pause(self, request: Request) -> Response:
        params.parse_params(request, ())
        return JSONResponse(await self._node.change_state(request.path_params["project"], "paused"))

    async def resume(self, request: Request) -> Response:
        params.parse_params(request, ())
        return JSONResponse(await self._node.change_state(request.path_params["project"], "active"))
