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
from evenlane.engine.http.server.security_headers import SecurityHeaders
from evenlane.engine.http.v1.api import Api

if TYPE_CHECKING:
    from evenlane.engine.http.ports import NodeApi
    from evenlane.engine.http.server.auth import AccessControl


def app(node: NodeApi, access: AccessControl, *, body_idle_s: float = BODY_IDLE_S) -> Starlette:
    """Build the ASGI app. `body_idle_s` is how long a request under /api/v1 may send nothing of its body."""
    everybody, reads, changes = HealthRoutes(node), ReadRoutes(node, access), WriteRoutes(node, access)
    return Starlette(
        routes=[
            Route("/healthz", everybody.health),
            Route("/readyz", everybody.ready),
            Route("/metrics", everybody.metrics),
            Route("/", reads.page),
            Route("/static/{path:path}", reads.static),
            Route("/api/overview", reads.overview),
            Route("/api/events", reads.events),
            Route("/api/why/{project}", reads.why),
            Route("/api/dead/{project}", reads.dead_letters),
            Route("/api/dead/{project}/replay", changes.replay, methods=["POST"]),
            Route("/api/dead/{project}/{seq}", reads.dead_letter),
            Route("/api/topics/{project}/pause", changes.pause, methods=["POST"]),
            Route("/api/topics/{project}/resume", changes.resume, methods=["POST"]),
            *Api(node.puts, node.topics, access, body_idle_s).routes(),
        ],
        middleware=[Middleware(SecurityHeaders)],
        exception_handlers={EvenlaneError: on_known, HTTPException: on_http, Exception: on_defect},
    )
