"""An environment of its own on a running nats-server: streams made, a node on them, and all deleted after."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from nats.js.errors import NotFoundError

from evenlane.engine.base import names
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.base.names import LaneId
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.proof.scenarios.client import plain_client
from evenlane.engine.store.jetstream.client.connection import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.proof.scenarios.load import Tenant

_GRACE_S = 2.0


class Environment:
    def __init__(self, name: str, facts: ClusterConfig, tenants: Sequence[Tenant], store: JetStreamStore) -> None:
        self.name, self._facts, self._store = name, facts, store
        self._topics = {each.name: each.topic for each in tenants}

    @asynccontextmanager
    async def serving(
        self,
        handle: Callable[[Message], Awaitable[None]],
        scheduler: Scheduler[Queue],
        *,
        slots: int,
        limits: MemoryBudget,
        on_stop: Callable[[str], None],
        push: Callable[[Message], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Node]:
        """A node that owns all partitions; it is stopped at the end, with what it hasn't handled."""
        node = Node(
            self._store, self._facts, Handler.of(handle), self._topics.get,
            env=self.name, concurrency=slots, limits=limits, scheduler=scheduler, on_stop=on_stop,
            push=push,
        )  # fmt: skip
        await node.start()
        try:
            await node.take_over(range(self._facts.partitions), 1)
            yield node
        finally:
            await node.stop(_GRACE_S)


@asynccontextmanager
async def environment(
    url: str, name: str, facts: ClusterConfig, tenants: Sequence[Tenant]
) -> AsyncIterator[Environment]:
    """Raises Unreachable."""
    lanes = [LaneId(kind, number) for kind in ("lanes", "later") for number in range(facts.partitions)]
    store = JetStreamStore(NatsOptions((url,)), name)
    try:
        await store.open()
        await store.prepare(lanes)
        yield Environment(name, facts, tenants, store)
    finally:
        await store.close()
        await _delete(url, name, lanes)


async def _delete(url: str, env: str, lanes: Sequence[LaneId]) -> None:
    async with plain_client([url]) as client:
        streams = client.jetstream()
        for stream in (*(names.stream(env, lane) for lane in lanes), *names.other_streams(env)):
            with suppress(NotFoundError):
                await cancellable(streams.delete_stream(stream))
