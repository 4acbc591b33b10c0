"""Nodes on virtual time, with store and etcd in memory. All of a node runs but HTTP, and the clients of its servers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from evenlane.engine.base import names
from evenlane.engine.base.aio.loop_thread import SameLoop
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
from evenlane.engine.cluster.owners import read_owners
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.subscriptions.creation import Stores, SubscriptionCreation
from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion
from evenlane.engine.control.subscriptions.reset import SubscriptionReset
from evenlane.engine.control.subscriptions.retention_change import RetentionChange
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.producer.producer import Producer
from evenlane.engine.runtime.engine import Engine
from evenlane.engine.store.jetstream.api.server_clock import ServerClock
from evenlane.engine.store.memory.bus import MemoryBroker, MemoryBus
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.ledger.entries import Entry
from tests.ledger.world import SETTINGS, TOPIC
from tests.simulation.etcd import SimCoordination, SimEtcd
from tests.simulation.loop import NODE, SECOND, Actor
from tests.simulation.network import NEAR, Link
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.cluster.subscriptions.registry import Retain
    from evenlane.engine.control.subscriptions.start_point import StartPoint
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Stored
    from evenlane.engine.producer.put import Put
    from tests.simulation.loop import SimLoop

_EXPIRE_S = 0.5  # between two looks of etcd for ended leases
_WAIT_S = 60.0


class VirtualNode(Actor):
    """A node's process. Its wall clock is `ahead_s` seconds fast. `pid` identifies it in the ledger."""

    def __init__(self, cluster: VirtualCluster, name: str, pid: int, ahead_s: float, subscription: str | None) -> None:
        super().__init__(name)
        self.pid, self._cluster, self._ahead_ns = pid, cluster, int(ahead_s * SECOND)
        settings = replace(cluster.settings_of(name), subscription=subscription)
        self.engine = Engine(cluster.handle, settings=settings, connect=self)

    def start(self) -> None:
        self._task = self._cluster.loop.create_task(self._run(), name=self.name, context=self.context)

    async def _run(self) -> None:
        async with self.engine as engine:
            assert await engine.run(), f"{self.name} ended uncleanly"

    def check(self) -> None:
        """Raise the error with which the process has ended, if it has."""
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the process's end."""
        self._cluster.loop.call_soon(self.engine.stop, context=self.context)
        await self._task

    # ---- `evenlane.engine.cluster.connections.Connections`

    def etcd(self, _settings: Settings) -> Any:
        return self._cluster.coordination()

    def lease_runner(self) -> SameLoop:
        return SameLoop()

    def store(self, settings: Settings, _name: str, *, feeds: bool = False) -> MemoryStore:
        return self._cluster.node_store(settings.cluster, self._ahead_ns)

    def questions(self, _settings: Settings, _name: str) -> MemoryBus:
        return MemoryBus(self._cluster.broker)


class _EstimatingStore(MemoryStore):
    """A store that estimates its server's clock from responses, as that of JetStream does. Until the first response it
    takes the machine's wall clock, which is `ahead_ns` ahead.
    """

    def __init__(self, cluster: VirtualCluster, name: str, ahead_ns: int) -> None:
        self._estimate = ServerClock()
        self._estimate.offset = cluster.epoch_ns + ahead_ns
        super().__init__(cluster.server, name, clock=lambda: self._estimate.offset + cluster.now)

    async def open(self) -> None:
        await super().open()
        await self._estimate.begin(self, "any")  # type: ignore[arg-type]

    async def api_as(self, _kind: object, _verb: str) -> Any:
        """Answer the only request of `ServerClock`: a stream's info, for the server's time."""
        return SimpleNamespace(now=self.server.clock())


class VirtualCluster:
    """`async with VirtualCluster(loop, epoch_ns) as cluster:`. The servers' unix time is the loop's time plus
    `epoch_ns`. It is the world of a `FlowLedger`, whose handlers obey orders `fail N`: see tests/ledger/handlers.py.
    """

    env = "online"

    def __init__(self, loop: SimLoop, epoch_ns: int, **settings: Any) -> None:
        self.loop, self.epoch_ns, self._settings = loop, epoch_ns, SETTINGS | settings
        self.broker, self.server = MemoryBroker(), MemoryServer(clock=lambda: epoch_ns + loop.now)
        self.nodes: list[VirtualNode] = []
        self.refused: list[Exception] = []
        self._etcd, self._delays = SimEtcd(loop), Random(1)
        self._client = self.coordination()
        self._last_pid = 0
        self.handled: defaultdict[str, list[str]] = defaultdict(list)  # ids of messages by subscription
        self._entries: defaultdict[str, list[Entry]] = defaultdict(list)
        self._begins: defaultdict[str, list[Entry]] = defaultdict(list)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._leases = asyncio.create_task(self._expire_leases())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._stack.aclose()
            for node in self.nodes:
                await node.stop()
        finally:
            self._leases.cancel()
            await asyncio.gather(self._leases, return_exceptions=True)

    async def _expire_leases(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_S)
            self._etcd.pass_time()

    @property
    def now(self) -> int:
        """The clock of handlers and ledger, ns."""
        return self.loop.now

    def settings_of(self, node: str | None = None) -> Settings:
        return Settings(env=self.env, node=node, **self._settings)

    def coordination(self) -> SimCoordination:
        return SimCoordination(self.loop, self._etcd, Link(self._delays, NEAR))

    def node_store(self, cluster: str, ahead_ns: int) -> MemoryStore:
        """A node's store. Its wall clock is `ahead_ns` fast."""
        return _EstimatingStore(self, cluster, ahead_ns)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[MemoryBus]:
        """A connection for questions to nodes."""
        bus = MemoryBus(self.broker)
        await bus.open()
        try:
            yield bus
        finally:
            await bus.close()

    async def start(self, name: str, *, ahead_s: float = 0.0, subscription: str | None = None) -> VirtualNode:
        """Start a node, and wait until all nodes own partitions."""
        self._last_pid += 1
        node = VirtualNode(self, name, self._last_pid, ahead_s, subscription)
        node.start()
        self.nodes.append(node)
        await until(self._is_shared, _WAIT_S, f"{name} to own partitions")
        return node

    async def stop(self, node: VirtualNode) -> None:
        """Stop a node, and wait until the others own its partitions."""
        await node.stop()
        self.nodes.remove(node)
        await until(self._is_shared, _WAIT_S, f"the partitions of {node.name} to move")

    async def _is_shared(self) -> bool:
        of: defaultdict[str, set[str]] = defaultdict(set)
        for node in self.nodes:
            node.check()
            of[node.engine.settings.cluster].add(node.name)
        count = self._settings["partitions"]
        for cluster, nodes in of.items():
            owners = await read_owners(self._client, cluster, count)
            if len(owners) < count or set(owners.values()) != nodes:
                return False
        return True

    async def topic(self, project: str, **fields: object) -> None:
        """Write a topic, and wait until it is in effect."""
        status = await TopicClient(self._client, self.env, await self._config()).change(project, {**TOPIC, **fields})
        assert status.is_accepted, status

    async def _config(self) -> ClusterConfig:
        return await agree_cluster_config(self._client, self.env, {})

    async def producer(self) -> Producer:
        topics, store = TopicCache(self._client, self.env), MemoryStore(self.server, self.env)
        await topics.start()
        self._stack.push_async_callback(topics.close)
        await store.open()
        self._stack.push_async_callback(store.close)
        producer = Producer(settings=self.settings_of(), store=store, topics=topics, facts=await self._config())
        return await self._stack.enter_async_context(producer)

    async def store(self, cluster: str = "online") -> MemoryStore:
        """A store as a command has it, open until the end."""
        store = MemoryStore(self.server, cluster)
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def create(self, subscription: str, start: StartPoint | None = None) -> None:
        """Create a subscription, as the command does."""
        stores = await self._stores(subscription)
        await SubscriptionCreation(self._client, self.env, subscription, await self._config(), stores).run((), start)

    async def retain(self, retain: Retain | None) -> None:
        """Set how long settled messages are kept, as the command does."""
        change = RetentionChange(self._client, self.env, await self._config(), await self.store())
        await (change.end() if retain is None else change.begin(retain))

    async def resetting(self, subscription: str) -> SubscriptionReset:
        """What the command that resets a subscription uses."""
        stores = await self._stores(subscription)
        return SubscriptionReset(self._client, self.env, subscription, await self._config(), stores)

    async def _stores(self, subscription: str) -> Stores:
        return Stores(await self.store(), await self.store(names.cluster_name(self.env, subscription)))

    async def delete(self, subscription: str) -> None:
        """Delete a subscription, as the command does."""
        own = await self.store(names.cluster_name(self.env, subscription))
        await SubscriptionDeletion(self._client, self.env, subscription, own).run()

    def waiting(self) -> int:
        """The messages in the streams that all subscriptions share."""
        lanes = [LaneId(kind, p) for kind in names.SHARED_KINDS for p in range(self._settings["partitions"])]
        return sum(len(self.server.messages(names.stream(self.env, lane))) for lane in lanes)

    def meter_records(self) -> list[Stored]:
        """Return all records of all nodes."""
        return self.server.messages(names.meter_stream(self.env))

    # ---- the world of a ledger

    async def handle(self, message: Message) -> None:
        self._note(message, "begin")
        if message.attempt <= int(message.headers.get("order", "fail 0").split()[1]):
            self._note(message, "fail")
            raise RuntimeError("as ordered")
        self._note(message, "ok")
        self.handled[message.subscription].append(message.id)

    def _note(self, message: Message, what: str) -> None:
        node = NODE.get()
        assert isinstance(node, VirtualNode)
        entry = Entry(
            self.now, node.pid, what, message.project, message.id, message.attempt, message.stream, message.sequence,
            message.epoch, message.priority, "", message.chosen,
        )  # fmt: skip
        self._entries[message.project].append(entry)
        if what == "begin":
            self._begins[message.project].append(entry)

    async def put(self, producer: Producer, puts: list[Put]) -> None:
        self.refused += [found for found in await producer.put_many(puts) if isinstance(found, Exception)]

    def of(self, project: str) -> list[Entry]:
        return self._entries[project]

    def begins(self, project: str) -> list[Entry]:
        return self._begins[project]
