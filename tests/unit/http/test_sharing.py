"""Metrics page: two formats, each written once for concurrent requests."""

import asyncio
from types import SimpleNamespace

import pytest

from evenlane.engine.http import engine_view
from evenlane.engine.telemetry.prometheus.exposition import OPENMETRICS, TEXT, Page, kind_of


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", TEXT),
        ("text/plain;version=1.0.0", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.77", OPENMETRICS),
        ("application/openmetrics-text;version=junk", TEXT),
    ],
)
def test_accept_header_selects_one_of_two_formats(accept, kind):
    assert kind == kind_of(accept)
    assert kind == kind_of(kind)


async def test_concurrent_requests_share_a_page_per_format(monkeypatch):
    """Clients can't keep the node busy."""
    written = []

    async def page(_seen, accept):
        written.append(accept)
        await asyncio.sleep(0)
        return Page(accept.encode(), accept)

    monkeypatch.setattr(engine_view, "page", page)
    monkeypatch.setattr(engine_view, "snapshot", lambda _engine: None)
    settings = SimpleNamespace(env="online", cluster="online", lease_ttl=10.0)
    shown = engine_view.EngineView(SimpleNamespace(settings=settings, id="n"), SimpleNamespace(status=None))
    accepts = ["text/plain", *(f"application/openmetrics-text;version=1.0.{n}" for n in range(9))]
    pages = await asyncio.gather(*(shown.metrics(accept) for accept in accepts * 5))
    assert ([TEXT, OPENMETRICS], {TEXT, OPENMETRICS}) == (written, {page.content_type for page in pages})
