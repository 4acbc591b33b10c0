"""A partition that moves from one node to another, on the store in memory, while handlers of it still run."""

import asyncio
import time

from evenlane.engine.base.names import LaneId, stream
from evenlane.engine.cluster.ownership.handoff import handoff_record
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.ring.hashing import partition_of
from evenlane.ring.membership.records import HeldLane, HeldRecord
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World

P = partition_of("acme", 0, 2, CLUSTER_CONFIG.partitions, "hashed")
GROUPS = [group for group in range(10) if partition_of("acme", group, 2, CLUSTER_CONFIG.partitions, "hashed") == P]


class Two(World):
    """Nodes own the partitions that they open. `slow` has the (node, id) of messages whose handlers wait for `gate`,
    and then raise `error`, if there is one, in their first attempt; the node "*" is any. `begun` has the (node, id) of
    each start.
    """

    def __init__(self, **topics):
        super().__init__(**topics)
        self.slow, self.gate, self.error = set(), asyncio.Event(), None
        self.begun = []

    async def __aexit__(self, *error):
        self.gate.set()
        await super().__aexit__(*error)

    async def bare(self, name="a", **options):
        """A started node that owns nothing."""
        store = MemoryStore(self.server, "online")
        await store.open()

        async def handle(message):
            self.begun.append((name, message.id))
            if (name, message.id) in self.slow or ("*", message.id) in self.slow:
                await self.gate.wait()
                if self.error is not None and message.attempt == 1:
                    raise self.error
            self.handled.append(message)

        options = {
            "concurrency": 8,
            "settle_interval": 0.02,
            "purge_interval": 0.02,
            "limits": MemoryBudget(),
            **options,
        }
        node = Node(
            store,
            CLUSTER_CONFIG,
            RouteTable.of(options.pop("handler", handle)),
            self.topics.get,
            node_id=name,
            **options,
        )
        self.nodes.append(node)
        await node.start()
        return node

    async def released(self, node, epoch):
        """Release P. Returns the record of messages that still run or aren't settled, as the next owner reads it."""
        node.owned.stop_partition(P)
        self.lanes = await node.owned.hand_off(P, epoch, 0.05)
        return self.record()

    def record(self):
        return handoff_record("a", 1, self.lanes)

    def held_record(self, running=(), done=(), kind="lanes"):
        """The record of a previous owner, in the stream's present state."""
        found = self.server.stream(stream("online", lane_of(kind))).state()
        lane = HeldLane(
            created=found.created, high=found.last, high_at=found.at, running=sorted(running), done=sorted(done)
        )
        return HeldRecord(id="a", lanes={kind: lane})

    def times(self, name):
        """The number of times that a node has started each message, by id."""
        mine = [message for node, message in self.begun if node == name]
        return {message: mine.count(message) for message in mine}


def lane_of(kind):
    return LaneId(kind, P)


def due_soon():
    return time.time_ns() + SECOND // 50
