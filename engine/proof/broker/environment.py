"""A separate environment on a running nats-server: its streams are created, serve a node, and are deleted."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from nats.aio.client import Client
from nats.js.errors import NotFoundError

from evenlane.engine.base import names
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.base.names import Kind, LaneId
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.quota.topics.topic import Topic

_GRACE_S = 2.0
_KINDS: tuple[Kind, Kind] = ("lanes", "later")


class Environment:
    def __init__(
        self, name: str, cluster_config: ClusterConfig, topic_of: Callable[[str], Topic | None], store: JetStreamStore
    ) -> None:
        self.name, self._cluster_config, self._topic_of, self._store = name, cluster_config, topic_of, store

    @asynccontextmanager
    async def serve(
        self,
        handle: Callable[[Message], Awaitable[None]],
        scheduler: Scheduler[Queue],
        *,
        slots: int,
        limits: MemoryBudget,
        on_stop: Callable[[str], None],
        push: Callable[[Message], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Node]:
        """A node that owns all partitions; it is stopped at the end, whatever its backlog is."""
        node = Node(
            self._store, self._cluster_config, RouteTable.of(handle), self._topic_of,
            cluster=self.name, concurrency=slots, limits=limits, scheduler=scheduler, on_stop=on_stop,
            push=push,
        )  # fmt: skip
        await node.start()
        try:
            await node.take_over(range(self._cluster_config.partitions), 1)
            yield node
        finally:
            await node.stop(_GRACE_S)


@asynccontextmanager
async def environment(
    url: str, name: str, cluster_config: ClusterConfig, topic_of: Callable[[str], Topic | None]
) -> AsyncIterator[Environment]:
    """Create all lanes, and delete them when the block ends. Raises Unreachable."""
    async with open_store(url, name, feeds=True) as store:
        await store.prepare(lanes(cluster_config.partitions))
        yield Environment(name, cluster_config, topic_of, store)
    await _delete(url, name, cluster_config)  # (after a failure the server is removed with its data)


@asynccontextmanager
async def open_store(url: str, env: str, *, feeds: bool = False) -> AsyncIterator[JetStreamStore]:
    """Open a connection: with `feeds` as a node does, otherwise as a producer does. Raises Unreachable."""
    store = JetStreamStore(NatsOptions((url,)), env, feeds_apart=feeds)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def lanes(partitions: int) -> list[LaneId]:
    return [LaneId(kind, number) for kind in _KINDS for number in range(partitions)]


async def _delete(url: str, env: str, cluster_config: ClusterConfig) -> None:
    async with plain_client(url) as client:
        streams = client.jetstream()
        own = (names.stream(env, lane) for lane in lanes(cluster_config.partitions))
        for stream in (*own, *names.other_streams(env)):
            with suppress(NotFoundError):
                await cancellable(streams.delete_stream(stream))


@asynccontextmanager
async def plain_client(url: str) -> AsyncIterator[Client]:
    """A connected client that shares no code with the product. Its calls must be `cancellable`."""
    client = Client()
    try:
        await cancellable(client.connect([url]))
        yield client
    finally:
        await cancellable(client.close())
