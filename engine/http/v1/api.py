"""Routes of version 1: each operation behind its access check, and the document that describes them all."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from evenlane.engine.http.routes.params import parse_params
from evenlane.engine.http.server.guarded_route import GuardedRoute
from evenlane.engine.http.server.scopes import Need, Scope
from evenlane.engine.http.v1.messages import MessageOperations
from evenlane.engine.http.v1.openapi import describe
from evenlane.engine.http.v1.operations import JSON, PREFIX, Operation
from evenlane.engine.http.v1.topics import TopicOperations

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from evenlane.engine.http.puts import PutService
    from evenlane.engine.http.server.auth import AccessControl
    from evenlane.engine.http.topics import TopicService


class Api:
    """All operations. `idle_s` is how long a request may send nothing of its body."""

    def __init__(self, puts: PutService, topics: TopicService, access: AccessControl, idle_s: float) -> None:
        self._access = access
        self._document = b""  # made by the first request for it
        document = Operation(
            "GET", "/openapi.json", self.openapi, {HTTPStatus.OK: None},
            (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
            Need(Scope.READ, names_projects=False),
        )  # fmt: skip
        self.operations = [
            *MessageOperations(puts, idle_s).all(),
            *TopicOperations(topics, idle_s).all(),
            document,
        ]

    def routes(self) -> list[Route]:
        """Return a route for each path."""
        by_path: dict[str, dict[str, Operation]] = {}
        for each in self.operations:
            by_path.setdefault(each.path, {})[each.method] = each
        return [self._route(path, by_method) for path, by_method in by_path.items()]

    async def openapi(self, request: Request) -> Response:
        """Return this document."""
        parse_params(request, ())
        self._document = self._document or msgspec.json.encode(describe(self.operations))
        return Response(self._document, media_type=JSON)

    def _route(self, path: str, by_method: dict[str, Operation]) -> Route:
        async def serve(request: Request) -> Response:
            return await by_method["GET" if request.method == "HEAD" else request.method].call(request)

        needs = {method: operation.need for method, operation in by_method.items()}
        return GuardedRoute(PREFIX + path, serve, self._access, needs)
