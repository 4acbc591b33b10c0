"""Nodes with memberships: partitions move to and fro under load, and each message is handled once."""

import asyncio
import random

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.handlers.routes import RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.membership_cluster import MembershipCluster
from tests.support.node.world import LANES, World
from tests.support.until import until

CLUSTER_CONFIG = ClusterConfig(partitions=2, max_group_qps=1_000_000)
LONG_S = 0.3  # longer than a handoff waits for handlers


class Moving(MembershipCluster):
    """Nodes that handle messages of `world`: one in ten takes long, and one in seven fails in its first attempt."""

    def __init__(self, world, draw):
        super().__init__()
        self.world, self.draw = world, draw
        self.begun = []

    async def work(self, name):
        store = MemoryStore(self.world.server, "online")
        await store.open()

        async def handle(message):
            self.begun.append((message.id, message.attempt))
            if int(message.id) % 10 == 0:
                await asyncio.sleep(LONG_S * self.draw.random())
            if int(message.id) % 7 == 0 and message.attempt == 1:
                raise ValueError("once")
            self.world.handled.append(message)

        limits = MemoryBudget(read_ahead=8, index=20)
        node = Node(
            store, CLUSTER_CONFIG, RouteTable.of(handle), self.world.topics.get, node_id=name, concurrency=6,
            settle_interval=0.02, limits=limits,on_stop=self.world.reasons.append, on_fenced=self.world.reasons.append,
        )  # fmt: skip
        self.world.nodes.append(node)
        await node.start()
        await self.join(name, host=node.owned)
        return node

    def lose_some(self):
        """Lose random answers of etcd."""
        for node in self.nodes:
            node.client.lose = set(self.draw.sample(["owners", "plan", "held"], self.draw.randint(0, 1)))

    def lose_none(self):
        for node in self.nodes:
            node.client.lose = set()


@pytest.mark.parametrize("loses", [False, True], ids=["", "answers lost"])
@pytest.mark.parametrize("seed", range(3))
async def test_moving_partitions_handle_each_message_once(seed, loses):
    """Z1, L, D: handoffs make no duplicates, and each failed message is retried once."""
    draw = random.Random(f"{seed} {loses}")
    async with World() as world:
        world.reasons = []
        await world.store.prepare(LANES)
        async with Moving(world, draw) as cluster:
            for name in "abc":
                await cluster.work(name)
            count = 0
            for _ in range(12):
                for _ in range(draw.randint(1, 40)):
                    count += 1
                    await world.put(group=draw.randrange(10), id=f"{count}")
                owners = [draw.choice("abc") for _ in range(2)]
                if loses:
                    cluster.lose_some()
                await cluster.plan(**{name: [p for p in range(2) if owners[p] == name] for name in "abc"})
                await asyncio.sleep(draw.random() * 0.1)
                cluster.lose_none()
            await world.all_gone(30)
            await until(lambda: _none_held(cluster))
        assert [] == world.reasons
        expected = {(f"{n}", 1) for n in range(1, count + 1)} | {(f"{n}", 2) for n in range(7, count + 1, 7)}
        assert expected == set(cluster.begun)
        assert len(expected) == len(cluster.begun)


async def _none_held(cluster):
    return not await cluster.held()
