"""Changes the number of replicas of an environment's streams, a few at a time, while nodes and producers go on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from evenlane.engine.cluster import connections
from evenlane.engine.core.ports import Lost
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.replication_port import Replication, StreamReplicas

AT_ONCE = 8
"""Streams that copy at the same time: enough to be quick, few enough that nodes and producers hardly notice."""
_PAUSE_S = 0.25


@asynccontextmanager
async def open_replication(settings: Settings) -> AsyncIterator[Replication]:
    """Raises ConfigError, Unreachable. Errors inside are translated as by `connections.translate_errors`."""
    with connections.translate_errors():
        replication = connections.replication(settings, "evenlane streams")
        await replication.open()
        try:
            yield replication
        finally:
            await replication.close()


async def migrate(
    replication: Replication,
    env: str,
    replicas: int,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Give each stream this number of replicas; return how many streams had another one. Returns once all replicas have
    all messages. `on_progress` gets the number of streams that are done, and of all.

    Can be stopped at any time, and run again: it goes on with the streams that are left. Raises Refused for a stream
    that the servers can't store so often, and EvenlaneError if the environment has no streams.
    """
    streams = await _list(replication)
    if not streams:
        raise EvenlaneError(f"environment {env!r} has no streams: the first node of an environment creates them")
    changed: set[str] = set()
    while True:
        # listed each time: nodes that start meanwhile may create streams with another number
        waiting = [each.stream for each in streams if each.replicas != replicas]
        copying = [each for each in streams if each.replicas == replicas and not each.is_complete]
        on_progress(len(streams) - len(waiting) - len(copying), len(streams))
        if not waiting and not copying:
            return len(changed)
        for stream in waiting[: max(0, AT_ONCE - len(copying))]:
            await _set(replication, stream, replicas)
            changed.add(stream)
        await asyncio.sleep(_PAUSE_S)
        streams = await _list(replication)


async def _list(replication: Replication) -> list[StreamReplicas]:
    """Ask until an answer comes: the servers elect leaders while streams move."""
    while True:
        try:
            return await replication.list_streams()
        except Lost:
            await asyncio.sleep(_PAUSE_S)


async def _set(replication: Replication, stream: str, replicas: int) -> None:
    while True:
        try:
            return await replication.set_replicas(stream, replicas)
        except Lost:
            await asyncio.sleep(_PAUSE_S)
