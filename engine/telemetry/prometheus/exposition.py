"""The page that Prometheus reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.exposition import choose_encoder

from evenlane.engine.base.background_work import unobtrusive
from evenlane.engine.telemetry.prometheus.collector import families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from evenlane.engine.telemetry.prometheus.snapshot import Snapshot


OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain"


class Page(NamedTuple):
    body: bytes
    content_type: str


class _Seen:
    """A registry with nothing in it but what was seen."""

    def __init__(self, seen: Snapshot) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        return families(self._seen)


def written(seen: Snapshot, accept: str) -> Page:
    """In OpenMetrics if `accept` (of the request) asks for it, else in Prometheus' own text."""
    encode, content_type = choose_encoder(accept)
    with unobtrusive():
        return Page(encode(_Seen(seen)), content_type)


def kind_of(accept: str) -> str:
    """One of two ways to ask that give all that one who asks so needs: so nobody can have one page written in any
    number of ways.
    """
    try:
        content_type = choose_encoder(accept)[1]
    except (ValueError, TypeError):  # a version that is none
        return TEXT
    return OPENMETRICS if content_type.startswith("application/openmetrics-text") else TEXT


async def page(seen: Snapshot, accept: str) -> Page:
    """`written`, in a thread: thousands of lines would hold the loop."""
    return await asyncio.to_thread(written, seen, accept)
