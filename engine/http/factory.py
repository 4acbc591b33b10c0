"""Builds an engine's HTTP server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.http.app import app
from evenlane.engine.http.engine_view import EngineView
from evenlane.engine.http.server.auth import AccessControl
from evenlane.engine.http.server.certificate import Certificate
from evenlane.engine.http.server.server import HttpServer
from evenlane.engine.http.server.token_file import TokenFile

if TYPE_CHECKING:
    from evenlane.engine.telemetry.node_view import NodeView
    from evenlane.ring.coordination.ports import Coordination


def server(view: NodeView, coordination: Coordination) -> HttpServer:
    """Return a server that isn't open yet, for settings with a port. Raises ConfigError for an invalid token or
    certificate.
    """
    settings = view.settings
    assert settings.http_port is not None
    settings.http_token()
    tokens = TokenFile(settings.http_tokens_file)
    tokens.grants()
    views = EngineView(view, coordination)
    access = AccessControl(settings.http_token, tokens.grants)
    tls = None
    if settings.http_cert is not None and settings.http_key is not None:
        tls = Certificate(settings.http_cert, settings.http_key).context
    return HttpServer(app(views, access), settings.http_host, settings.http_port, on_ending=views.close, tls=tls)
