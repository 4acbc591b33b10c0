"""A route behind an access check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from evenlane.engine.http.server.actor import make_actor, write_audit
from evenlane.engine.http.server.scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from evenlane.engine.http.server.auth import AccessControl
    from evenlane.engine.http.server.scopes import Need


class GuardedRoute(Route):
    """A path. `needs` has what a request needs, by method; nothing else of the request is looked at before."""

    def __init__(
        self,
        path: str,
        call: Callable[[Request], Awaitable[Response]],
        access: AccessControl,
        needs: Mapping[str, Need],
    ) -> None:
        async def serve(request: Request) -> Response:
            need = needs["GET" if request.method == "HEAD" else request.method]
            request.state.actor = make_actor(access.check(request, need), request)
            return await (_audited(call, request) if need.scope is Scope.CHANGE else call(request))

        super().__init__(path, serve, methods=list(needs))
        self.needs = needs


async def _audited(call: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """Answer, and write into the audit log that somebody made, or tried to make, a change."""
    try:
        response = await call(request)
    except Exception as error:
        write_audit(request, error=str(error) or type(error).__name__)
        raise
    write_audit(request, error=None)
    return response
