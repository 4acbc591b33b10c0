"""Writes the page that Prometheus reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.exposition import choose_encoder

from evenlane.engine.base.background_work import low_priority
from evenlane.engine.telemetry.prometheus.collector import families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from evenlane.engine.telemetry.prometheus.snapshot import Snapshot


OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain"


class Page(NamedTuple):
    """An HTTP body and its content type."""

    body: bytes
    content_type: str


class _Seen:
    """A registry that contains only a snapshot."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        return families(self._seen)


def write_page(seen: Snapshot, accept: str) -> Page:
    """Write the page, in OpenMetrics if the request's `accept` asks for it, otherwise in Prometheus text format."""
    encode, content_type = choose_encoder(accept)
    with low_priority():
        return Page(encode(_Seen(seen)), content_type)


def kind_of(accept: str) -> str:
    """Reduce an `accept` header to one of two values, so that clients can cause only two pages to be written."""
    try:
        content_type = choose_encoder(accept)[1]
    except (ValueError, TypeError):  # an invalid version
        return TEXT
    return OPENMETRICS if content_type.startswith("application/openmetrics-text") else TEXT


async def page(seen: Snapshot, accept: str) -> Page:
    """Run `write_page` in a thread, as thousands of lines would block the loop."""
    return await asyncio.to_thread(write_page, seen, accept)
