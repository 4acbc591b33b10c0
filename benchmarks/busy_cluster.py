"""What the benchmarks of the data path share: a server, a busy tenant in many queues, and a node that is timed."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import nats

from evenlane import Message  # noqa: TC001 - the annotation of a handler is evaluated
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import Accepted, complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence


class Payload(msgspec.Struct):
    """The body of each message: 100 bytes of JSON."""

    id: int
    customer: str
    amount: float
    note: str


BODY = msgspec.json.encode(Payload(1_234_567, "customer-0042", 1234.56, "leave it at the door, ring twice"))
assert len(BODY) == 100
WINDOW = 2_000  # messages that are published at once
TIMEOUT_S = 300


@asynccontextmanager
async def running_server() -> AsyncIterator[NatsServer]:
    """A nats-server in a folder of its own, which is deleted with it."""
    with tempfile.TemporaryDirectory(prefix="evenlane-bench-") as folder:
        server = NatsServer(Path(folder), fast=True)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


class Topics:
    """Two tenants: `busy`, whose messages are handled, and `still`, which is paused."""

    def __init__(self, cluster_config: ClusterConfig, groups: int) -> None:
        qps = 1_000_000  # more than the node can handle
        specs = {
            "busy": b'{"qps": %d, "groups": %d, "spread": %d}' % (qps, groups, cluster_config.partitions),
            "still": b'{"qps": 100, "state": "paused"}',
        }
        topics = {name: complete(parse_spec(spec), cluster_config) for name, spec in specs.items()}
        # an accepted topic stays the same object until it changes, as in the topic cache
        self.get = {name: Accepted(topic=topic, active=topic.groups, revision=1) for name, topic in topics.items()}.get


class BusyCluster:
    """`queues` is the number of the busy tenant's queues: a third of them are its groups."""

    def __init__(self, url: str, partitions: int, queues: int) -> None:
        self.url = url
        self.config = ClusterConfig(partitions=partitions, max_group_qps=1_000_000)
        self.groups = max(1, queues // 3)
        self.topics = Topics(self.config, self.groups)

    async def open_store(self, env: str, *, prepared: bool = True) -> JetStreamStore:
        store = JetStreamStore(NatsOptions((self.url,)), env)
        await store.open()
        if prepared:
            await store.prepare([LaneId(k, p) for k in ("lanes", "later") for p in range(self.config.partitions)])
        return store

    async def close_store(self, store: JetStreamStore, env: str) -> None:
        """Close it, and delete its streams."""
        await store.close()
        client = await nats.connect(self.url)
        js = client.jetstream()
        while streams := [
            each.config.name
            for each in await js.streams_info()
            if each.config.name.endswith(f"_{env}") or f"_{env}_" in each.config.name
        ]:
            for stream in streams:
                await js.delete_stream(stream)
        await client.close()

    async def publish(self, store: JetStreamStore, messages: Iterable[tuple[str, int]]) -> None:
        """Publish a message for each pair of a subject and a number, which makes its id."""
        waiting = []
        for subject, number in messages:
            waiting.append(store.put(subject, h.encode({h.ID: f"b:{number:x}"}), BODY))
            if len(waiting) >= WINDOW:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)

    def busy_subjects(self, env: str, count: int) -> Iterator[tuple[str, int]]:
        for n in range(count):
            group, priority = n // 3 % self.groups, self.config.priorities[n % 3]
            yield lane_subject(env, group % self.config.partitions, "busy", group, priority), n

    async def start_node(
        self, store: JetStreamStore, env: str, routes: RouteTable, owned: Sequence[int] | None = None
    ) -> Node:
        """Start a node that owns the partitions `owned`, by default all."""

        def topic_of(project: str):
            accepted = self.topics.get(project)
            return accepted.topic if accepted else None

        limits = MemoryBudget(payload_bytes=256 << 20, index=1 << 20)
        node = Node(store, self.config, routes, topic_of, cluster=env, limits=limits)
        await node.start()
        await node.take_over(range(self.config.partitions) if owned is None else owned, 1)
        return node


class TimedNode:
    """A node whose feeds are closed until it is timed, so that only its own work is timed. A handler computes for
    `handle_us`. `routes_of` makes the routes of the handler.
    """

    def __init__(
        self,
        cluster: BusyCluster,
        store: JetStreamStore,
        env: str,
        count: int,
        *,
        handle_us: float = 0.0,
        routes_of: Callable[[TimedNode], RouteTable] | None = None,
    ) -> None:
        self._routes_of = routes_of or (lambda node: RouteTable.of(node.handle))
        self._cluster, self._store, self._env, self._count = cluster, store, env, count
        self._handle_s = handle_us / 1e6
        self._done, self._seen = asyncio.Event(), 0

    async def start(self, owned: Sequence[int] | None = None, *, backlog: int = 0, handled: int = 0) -> None:
        """Start it, wait until it has `backlog` messages in each partition and has handled `handled` messages, and
        close its feeds.
        """
        routes = RouteTable.of(self._handle_busily) if self._handle_s else self._routes_of(self)
        self.node = await self._cluster.start_node(self._store, self._env, routes, owned)
        self._partitions = list(self.node.partitions.values())
        while self.node.backlog < backlog * len(self._partitions) or self._seen < handled:
            await asyncio.sleep(0.05)
        self._seen = 0
        self._done.clear()
        await asyncio.gather(*(partition.close() for partition in self._partitions))

    async def run(self) -> tuple[float, float]:
        """Handle all messages. Return the time and the CPU time that it took, in seconds."""
        processor, start = time.process_time(), time.perf_counter()
        for partition in self._partitions:
            feeds, lane = partition._lane_feeds, partition.lane
            feeds.feeds = [self._store.feed(lane.id, lane.position + 1, lane.take_in, feeds._resume)]
        await asyncio.wait_for(self._done.wait(), TIMEOUT_S)
        return time.perf_counter() - start, time.process_time() - processor

    async def handle(self, _message) -> None:
        self._seen += 1
        if self._seen == self._count:
            self._done.set()

    async def handle_typed(self, _message: Message[Payload]) -> None:
        self._seen += 1
        if self._seen == self._count:
            self._done.set()

    async def _handle_busily(self, message) -> None:
        end = time.thread_time() + self._handle_s
        while time.thread_time() < end:
            pass
        await self.handle(message)
