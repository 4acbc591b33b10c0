"""Reads meter records from a real stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions

if TYPE_CHECKING:
    from tests.ledger.world import ProcessWorld


async def meter_bodies(world: ProcessWorld) -> list[bytes]:
    """All records so far."""
    stream = names.meter_stream(world.settings.env)
    connection = Connection(NatsOptions(world.settings.nats), "ledger test")
    await connection.open()
    try:
        last = (await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        asked = [b'{"seq":%d}' % sequence for sequence in range(1, last + 1)]
        replies = await asyncio.gather(*(connection.ask(f"$JS.API.DIRECT.GET.{stream}", each) for each in asked))
        return [reply.body for reply in replies]
    finally:
        await connection.close()
