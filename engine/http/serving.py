"""An engine's HTTP server, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.http.access import Access
from evenlane.engine.http.app import app
from evenlane.engine.http.server import HttpServer
from evenlane.engine.http.views import Views

if TYPE_CHECKING:
    from evenlane.engine.engine import Engine
    from evenlane.ring.coordination import Coordination


def server(engine: Engine, coordination: Coordination) -> HttpServer:
    """Not open yet; its settings have a port. Raises ConfigError for a token that is none."""
    settings = engine.settings
    assert settings.http_port is not None
    settings.http_token()
    views = Views(engine, coordination)
    return HttpServer(
        app(views, Access(settings.http_token)), settings.http_host, settings.http_port, ending=views.close
    )
