"""A node with N tenants, each with one message that waits for its handler. Prints the node's memory in bytes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import uvloop

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.wire.subjects import parse_queue
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority
from evenlane.engine.runtime.engine import Engine  # noqa: F401 - a node's process has it loaded, too
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.quota.topics.topic import accept, complete, decode_accepted, encode, parse_spec
from tests.support.lane_host import Host

if TYPE_CHECKING:
    from evenlane.engine.core.queue.queue import Queue


async def handle(_message) -> None:
    """Nothing."""


async def main(tenants: int) -> None:
    cluster_config = ClusterConfig()
    specs = [complete(parse_spec(b'{"qps": %d}' % (10 + n % 40)), cluster_config) for n in range(40)]
    topics = {  # each decoded from its own bytes, as those from etcd are
        f"tenant-{n}": decode_accepted(encode(accept(specs[n % 40], 1, None))).topic for n in range(tenants)
    }
    store = MemoryStore(MemoryServer(), "online")
    await store.open()
    node = Node(store, cluster_config, RouteTable.of(handle), topics.get, concurrency=tenants)
    bands = {name: band for band, name in enumerate(cluster_config.priorities)}
    node.lanes.serve(0, CatchUpPriority(node.ready.on_queue_ready, bands, 0.0))

    def open_queue(_lane: FedLane, subject: bytes, _entry: object) -> Queue:
        return node.queues.get(0, *parse_queue(subject, "lanes", bands))

    lane = FedLane(LaneId("lanes", 0), 1, node.limits, Host(open_queue, node.ready.on_queue_ready))
    for sequence, project in enumerate(topics, start=1):
        lane.take_in(lane_subject("online", 0, project, 0, "mid").encode(), sequence, 0, b"", b"x" * 100)
    waiting = psutil.Process().memory_info().rss
    started = 0
    while (message := node.dispatcher.next_message(now_ns())) is not None:
        node.scheduler.finish(message.queue, now_ns(), 0)
        started += 1
    assert tenants == started
    print(max(waiting, psutil.Process().memory_info().rss))  # noqa: T201 - its whole output


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
