"""A plain client of NATS: what the ledger sees, and what clears up, is none of our code."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from nats.aio.client import Client

from evenlane.engine.base.aio.cancellation import cancellable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@asynccontextmanager
async def plain_client(servers: Sequence[str]) -> AsyncIterator[Client]:
    """Inside it is connected. Its calls are to be `cancellable`."""
    client = Client()
    try:
        await cancellable(client.connect(list(servers)))
        yield client
    finally:
        await cancellable(client.close())
