"""A route behind an access check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

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
            access.check(request, needs["GET" if request.method == "HEAD" else request.method])
            return await call(request)

        super().__init__(path, serve, methods=list(needs))
        self.needs = needs
