"""The page that Prometheus reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.exposition import choose_encoder

from engine.metrics.families import families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from engine.metrics.families import Snapshot


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
    return Page(encode(_Seen(seen)), content_type)


async def page(seen: Snapshot, accept: str) -> Page:
    """`written`, in a thread: thousands of lines would hold the loop."""
    return await asyncio.to_thread(written, seen, accept)
