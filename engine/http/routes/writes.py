"""Routes that change something: they require the token, even from this machine."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from starlette.responses import JSONResponse, Response

from evenlane.engine.http.routes import params
from evenlane.engine.http.server.actor import actor_of, note_details

if TYPE_CHECKING:
    from starlette.requests import Request

    from evenlane.engine.control.topics.switch import State
    from evenlane.engine.http.ports import NodeApi


class WriteRoutes:
    """Routes with the scope `change`."""

    def __init__(self, node: NodeApi) -> None:
        self._node = node

    async def replay(self, request: Request) -> Response:
        """Replay dead letters. Answers 202 if the replay continues in the background."""
        return await self._act(request, "replayed")

    async def drop(self, request: Request) -> Response:
        """Drop dead letters. Answers 202 if that continues in the background."""
        return await self._act(request, "dropped")

    async def pause(self, request: Request) -> Response:
        return await self._change_state(request, "paused")

    async def resume(self, request: Request) -> Response:
        return await self._change_state(request, "active")

    async def _act(self, request: Request, done: Literal["replayed", "dropped"]) -> Response:
        subscription = params.subscription(params.parse_params(request, {"subscription"}))
        chosen = await params.chosen(request)
        note_details(request, **chosen.fields(), **({} if subscription is None else {"subscription": subscription}))
        letters = await self._node.dead_letters(subscription)
        act = letters.replay if done == "replayed" else letters.drop
        project, actor = request.path_params["project"], actor_of(request)
        outcome = await act(project, chosen.sequence, chosen.selection, str(actor))
        note_details(request, **({"running": True} if outcome["running"] else {"count": outcome[done]}))
        return JSONResponse(outcome, HTTPStatus.ACCEPTED if outcome["running"] else HTTPStatus.OK)

    async def _change_state(self, request: Request, state: State) -> Response:
        params.parse_params(request, ())
        changed = await self._node.change_state(request.path_params["project"], state, str(actor_of(request)))
        return JSONResponse(changed)
