"""A node on the store in memory, with two partitions and the topics of the test."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.quota.topics.topic import Topic, complete, parse_spec
from evenlane.ring.hashing import partition_of
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message

CLUSTER_CONFIG = ClusterConfig(partitions=2, max_group_qps=1_000_000)
LANES = [LaneId(kind, p) for kind in ("lanes", "later") for p in range(CLUSTER_CONFIG.partitions)]
SECOND = 1_000_000_000


def topic(**fields: Any) -> Topic:
    import msgspec

    backoff = {"base": 0.05, "factor": 2, "jitter": 0}
    spec = {"qps": 100_000, "groups": 10, "spread": 2, "backoff": backoff, **fields}
    return complete(parse_spec(msgspec.json.encode(spec)), CLUSTER_CONFIG)


def is_lagging(node: Node) -> bool:
    """Whether the node starts nothing because its results aren't durable."""
    return now_ns() >= node.settler.late_at


def is_durable(node: Node) -> bool:
    """Whether a crash would lose none of the node's results."""
    return not any(lane.log.unsynced_count for lane in node.owned.lanes())


def change(world: World, node: Node, rules: Topic, project: str = "acme") -> None:
    """Give a project other rules, and apply them on the node."""
    world.topics[project] = rules
    node.on_topic_change(project, rules)


class World:
    """One server, a store for puts, and any number of nodes, one after another."""

    def __init__(self, **topics: Topic) -> None:
        self.server = MemoryServer()
        self.topics = topics or {"acme": topic()}
        self.handled: list[Message] = []
        self.nodes: list[Node] = []
        self._ids = count(1)
        self._epochs = count(1)
        self.store = MemoryStore(self.server, "online")

    async def __aenter__(self) -> Self:
        await self.store.open()
        await self.store.prepare(LANES)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.stop(0.5)
            await node.store.close()
        await self.store.close()

    async def note(self, message: Message) -> None:
        """The default handler."""
        self.handled.append(message)

    async def node(self, handler: Callable[[Any], Any] | None = None, **options: Any) -> Node:
        """A node that owns all partitions, under the next epoch."""
        node = await self.idle_node(handler, **options)
        await node.take_over(range(CLUSTER_CONFIG.partitions), self.next_epoch())
        return node

    def next_epoch(self) -> int:
        return next(self._epochs)

    async def idle_node(self, handler: Callable[[Any], Any] | None = None, **options: Any) -> Node:
        """A node that owns nothing. `routes` are those of an application, in place of one handler."""
        store = self.new_store(options.get("cluster", "online"))
        await store.open()
        options = {
            "concurrency": 8,
            "settle_interval": 0.02,
            "purge_interval": 0.02,
            "limits": MemoryBudget(),
            **options,
        }
        routes = options.pop("routes", None) or RouteTable.of(handler or self.note)
        node = Node(store, CLUSTER_CONFIG, routes, self.topics.get, **options)
        self.nodes.append(node)
        await node.start()
        return node

    def new_store(self, cluster: str = "online") -> MemoryStore:
        """The store of another node."""
        return MemoryStore(self.server, cluster)

    def opening(self, node: Node) -> list[asyncio.Task[None]]:
        """Tasks in which the node takes over all partitions, each named by its number."""
        epoch = self.next_epoch()
        return [asyncio.create_task(node.owned.open(p, epoch), name=str(p)) for p in range(CLUSTER_CONFIG.partitions)]

    @staticmethod
    def partition_of(group: int, project: str = "acme") -> int:
        return partition_of(project, group, 2, CLUSTER_CONFIG.partitions, "hashed")

    def group_in(self, partition: int, project: str = "acme") -> int:
        """A group of the project that is in this partition."""
        return next(group for group in range(10) if self.partition_of(group, project) == partition)

    async def crash(self, node: Node) -> None:
        """End the node like kill -9: nothing more of it reaches the store."""
        self.nodes.remove(node)
        self.server.disconnect(node.store)
        node.trust(0)
        await node.stop(0.05)
        await node.store.close()

    async def put(self, body: bytes = b"x", project: str = "acme", group: int = 0, **options: Any) -> str:
        """Put a message. Returns its id."""
        message_id = str(options.get("id") or f"m{next(self._ids)}")
        headers = {h.ID: f"{project}:{message_id}", **options.get("headers", {})}
        partition = partition_of(project, group, 2, CLUSTER_CONFIG.partitions, "hashed")
        priority = options.get("priority", "mid")
        subject = names.lane_subject("online", partition, project, group, priority)
        if due := options.get("due"):
            headers[h.DUE] = str(due)
            hour = due // (3600 * SECOND)
            subject = names.later_subject("online", partition, project, group, priority, hour)
        await self.store.put(subject, h.encode(headers), body)
        return message_id

    async def put_many(self, count: int, **options: Any) -> list[str]:
        return [await self.put(b"%d" % n, **options) for n in range(count)]

    def dead(self) -> list[Any]:
        return self.server.messages(names.dead_stream("online"))

    def waiting(self) -> int:
        """The number of messages still in the lanes and delay streams."""
        return sum(len(self.server.messages(names.stream("online", lane))) for lane in LANES)

    @property
    def busy_lane(self) -> LaneId:
        """The first lane with a message."""
        return next(lane for lane in LANES if self.server.messages(names.stream("online", lane)))

    async def settled(self, lane: LaneId) -> Any:
        """The state in the lane's settle log."""
        return (await read_settle_log(self.store, lane)).state

    async def all_gone(self, timeout: float = 30.0) -> None:
        """Wait until all messages are settled and removed from their streams."""
        await until(lambda: self.waiting() == 0, timeout, "all streams to be empty")

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.handled]


async def turns(number: int = 20) -> None:
    """Let ready tasks run."""
    for _ in range(number):
        await asyncio.sleep(0)
