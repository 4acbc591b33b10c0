"""Routes of a node: all paths that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.http.errors import on_defect, on_http, on_known
from evenlane.engine.http.request_body import BODY_IDLE_S
from evenlane.engine.http.routes.health import HealthRoutes
from evenlane.engine.http.routes.reads import ReadRoutes
from evenlane.engine.http.routes.writes import WriteRoutes
from evenlane.engine.http.server.guarded_route import GuardedRoute
from evenlane.engine.http.server.scopes import Need, Scope
from evenlane.engine.http.server.security_headers import SecurityHeaders
from evenlane.engine.http.v1.api import Api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from evenlane.engine.http.ports import NodeApi
    from evenlane.engine.http.server.auth import AccessControl

    Call = Callable[[Request], Awaitable[Response]]

_READ = Need(Scope.READ)
_PAGE = Need(Scope.READ, names_projects=False)


def app(node: NodeApi, access: AccessControl, *, body_idle_s: float = BODY_IDLE_S) -> Starlette:
    """Build the ASGI app. `body_idle_s` is how long a request under /api/v1 may send nothing of its body."""
    everybody, reads, changes = HealthRoutes(node), ReadRoutes(node), WriteRoutes(node)

    def read(path: str, call: Call, need: Need = _READ) -> Route:
        return GuardedRoute(path, call, access, {"GET": need})

    def change(path: str, call: Call) -> Route:
        return GuardedRoute(path, call, access, {"POST": Need(Scope.CHANGE)})

    return Starlette(
        routes=[
            Route("/healthz", everybody.health),
            Route("/readyz", everybody.ready),
            Route("/metrics", everybody.metrics),
            read("/", reads.page, _PAGE),
            read("/static/{path:path}", reads.static, _PAGE),
            read("/api/overview", reads.overview),
            read("/api/events", reads.events),
            read("/api/why/{project}", reads.why),
            read("/api/dead/{project}", reads.dead_letters),
            read("/api/dead/{project}/errors", reads.errors),
            change("/api/dead/{project}/replay", changes.replay),
            change("/api/dead/{project}/drop", changes.drop),
            read("/api/dead/{project}/{seq}", reads.dead_letter),
            change("/api/topics/{project}/pause", changes.pause),
            change("/api/topics/{project}/resume", changes.resume),
            *Api(node.puts, node.topics, access, body_idle_s).routes(),
        ],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={EvenlaneError: on_known, HTTPException: on_http, Exception: on_defect},
    )
