"""An arm's streams for one turn: made, and deleted after it, so that no turn finds what another has left."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from nats.js.errors import NotFoundError

from evenlane.engine.base import names
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.base.names import Kind, LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.proof.scenarios.client import plain_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import OpenStore

_KINDS: tuple[Kind, Kind] = ("lanes", "later")


class Stores(NamedTuple):
    """Connections as a node and as a producer have them."""

    node: OpenStore
    producer: OpenStore


def lanes(partitions: int) -> list[LaneId]:
    return [LaneId(kind, number) for kind in _KINDS for number in range(partitions)]


@asynccontextmanager
async def stores(settings: Settings, partitions: int) -> AsyncIterator[Stores]:
    """Raises Unreachable."""
    both = Stores(connections.store(settings, "demo node", feeds=True), connections.store(settings, "demo producer"))
    with connections.translate_errors():
        try:
            await both.node.open()
            await both.node.prepare(lanes(partitions))
            await both.producer.open()
            yield both
        finally:
            await both.producer.close()
            await both.node.close()
        await _delete(settings, partitions)  # (after a failure the server goes, with all it has)


async def _delete(settings: Settings, partitions: int) -> None:
    env = settings.env
    async with plain_client(settings.nats) as client:
        streams = client.jetstream()
        own = (names.stream(env, lane) for lane in lanes(partitions))
        for stream in (*own, *names.other_streams(env)):
            with suppress(NotFoundError):
                await cancellable(streams.delete_stream(stream))
