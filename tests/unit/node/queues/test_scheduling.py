"""The node under its scheduler: quota, refunds, sleep until the next instant, batches, changed rules."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.message.message import batch
from evenlane.quota.topics.topic import complete, parse_spec
from tests.oracles.limiter import excess, steady
from tests.support.node.world import SECOND, World, change, topic, turns
from tests.support.scheduler.delegating import DelegatingScheduler
from tests.support.until import until


class Counting(DelegatingScheduler):
    """A fair scheduler that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def next(self, now):
        self.asked += 1
        return self.inner.next(now)


async def test_topic_gets_at_most_its_rate():
    """E10, E18, Q: in any window. Further messages wait."""
    async with World(acme=topic(qps=200, groups=1)) as world:
        await world.put_many(120)
        await world.node()
        await world.all_gone(30)
        chosen = [message.chosen for message in world.handled]
        assert 120 == len(chosen)
        assert excess(map(steady(200), chosen)) <= 2


async def test_node_sleeps_until_the_next_token():
    """E10: a queue with one message per 100 s isn't polled."""
    async with World(slow=topic(qps=0.01, groups=1), acme=topic()) as world:
        scheduler = Counting()
        await world.put_many(3, project="slow")
        await world.node(scheduler=scheduler)
        await until(lambda: len(world.handled) == 1)
        await turns(100)
        before = scheduler.asked
        await asyncio.sleep(0.2)  # a poll would happen within this time
        assert before == scheduler.asked
        assert 90 * SECOND < scheduler.wake_at() - now_ns() <= 100 * SECOND


async def test_expired_messages_cost_no_token():
    """E10: so the one that isn't expired starts at once."""
    async with World(acme=topic(qps=0.01, groups=1)) as world:
        for _ in range(50):
            await world.put(headers={"Evenlane-Expires": str(world.store.now() - 1)})
        message_id = await world.put(b"good")
        node = await world.node()
        await until(lambda: len(world.handled) == 1)
        assert [message_id] == world.ids
        assert 50 == node.counters.expired


async def test_raised_quota_acts_on_the_backlog():
    """X4: from one message per 100 s to 100,000 per second."""
    async with World(acme=topic(qps=0.01, groups=1)) as world:
        await world.put_many(500)
        node = await world.node()
        await until(lambda: len(world.handled) == 1)
        change(world, node, topic(groups=1))
        await world.all_gone()
        assert 500 == len(world.handled)


async def test_concurrency_bounds_messages_in_flight():
    """X1: each message of a batch counts."""
    running = most = 0

    @batch(max=10)
    async def handle(messages):
        nonlocal running, most
        running += len(messages)
        most = max(most, running)
        await asyncio.sleep(0)
        running -= len(messages)
        world.handled.extend(messages)

    async with World(acme=topic(concurrency=3)) as world:
        await world.put_many(60)
        await world.node(handle)
        await world.all_gone()
        assert (60, 3) == (len(world.handled), most)


async def test_slow_queue_holds_few_payloads():
    """E8, M: a queue with two messages per second reads a few ahead, and the rest are sequences."""
    slow = complete(parse_spec(b'{"qps": 2, "groups": 1}'), ClusterConfig())
    async with World(slow=slow) as world:
        await world.put_many(1000, project="slow")
        node = await world.node()
        await until(lambda: node.backlog + len(world.handled) >= 999)
        (queue,) = node.queues.of_project("slow")
        assert len(queue.ready) <= 4


def test_twenty_thousand_tenants_in_150_mb():
    """E2, E16, M: a node's whole memory with 20,000 topics and a message of each, in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.node.many_tenants", "20000"], check=True, capture_output=True, text=True
    )
    assert int(result.stdout) <= 150e6
