"""An environment of its own on a running nats-server: streams made, a node and puts on them, and all deleted after."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import nats
from nats.js.errors import NotFoundError

from engine import headers as h
from engine import names
from engine.names import LaneId
from engine.node import Node
from engine.node.handlers import Handler
from engine.stores.jetstream import JetStreamStore
from engine.stores.jetstream.connection import NatsOptions
from ring.hashing import partition_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from engine.facts import Facts
    from engine.index import Limits, Queue
    from engine.message import Message
    from engine.ports import Receipt
    from engine.scenarios.load import Tenant
    from engine.scheduler.interface import Scheduler

_GRACE_S = 2.0


class Environment:
    """`store` is the node's, `puts` a second connection as a producer would have."""

    def __init__(self, url: str, name: str, facts: Facts, tenants: Sequence[Tenant]) -> None:
        self.name, self.facts = name, facts
        self.store = JetStreamStore(NatsOptions((url,)), name)
        self.puts = JetStreamStore(NatsOptions((url,)), name, feeds_apart=False)
        self._topics = {each.name: each.topic for each in tenants}
        self._subjects: dict[tuple[str, int, int], str] = {}

    def put(self, project: str, group: int, band: int, number: int, body: bytes) -> Future[Receipt]:
        """Send a message off; the future is its acknowledgement."""
        key = (project, group, band)
        subject = self._subjects.get(key)
        if subject is None:
            partition = partition_of(project, group, self._topics[project].spread, self.facts.partitions)
            priority = self.facts.priorities[band]
            subject = self._subjects[key] = names.lane_subject(self.name, partition, project, group, priority)
        return self.puts.put(subject, h.encode({h.ID: f"{project}:{number}"}), body)

    def node(
        self,
        handle: Callable[[Message], Awaitable[None]],
        scheduler: Scheduler[Queue],
        *,
        slots: int,
        limits: Limits,
        on_stop: Callable[[str], None],
    ) -> Node:
        return Node(
            self.store, self.facts, Handler.of(handle), self._topics.get,
            env=self.name, concurrency=slots, limits=limits, scheduler=scheduler, on_stop=on_stop,
        )  # fmt: skip


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[Node]:
    """The node owns all partitions, and is stopped at the end with what it hasn't handled."""
    await node.start()
    try:
        await node.take_over(range(node.facts.partitions), 1)
        yield node
    finally:
        await node.stop(_GRACE_S)


@asynccontextmanager
async def environment(url: str, name: str, facts: Facts, tenants: Sequence[Tenant]) -> AsyncIterator[Environment]:
    """Raises Unreachable."""
    lanes = [LaneId(kind, number) for kind in ("lanes", "later") for number in range(facts.partitions)]
    made = Environment(url, name, facts, tenants)
    try:
        await made.store.open()
        await made.store.prepare(lanes)
        await made.puts.open()
        yield made
    finally:
        await made.puts.close()
        await made.store.close()
        await _delete(url, name, lanes)


async def _delete(url: str, env: str, lanes: Sequence[LaneId]) -> None:
    client = await nats.connect(url)
    try:
        streams = client.jetstream()
        for stream in (*(names.stream(env, lane) for lane in lanes), names.dead_stream(env), names.settled_stream(env)):
            with suppress(NotFoundError):
                await streams.delete_stream(stream)
    finally:
        await client.close()
