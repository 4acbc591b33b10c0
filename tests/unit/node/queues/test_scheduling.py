"""The node under its scheduler: quota, tokens given back, sleep until the next instant, batches, rules at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.quota.topics.topic import complete, parse_spec
from tests.oracles.limiter import excess, steady
from tests.support.node.world import SECOND, World, change, topic
from tests.support.until import until


class Counting(FairScheduler):
    """The product's, and how often it was asked."""

    def __init__(self, concurrency: int = 8) -> None:
        super().__init__(concurrency, 1_000_000)
        self.asked = 0

    def next(self, now):
        self.asked += 1
        return super().next(now)


async def test_a_topic_gets_its_rate_and_no_more():
    """E10, E18, Q: what is above the quota waits; no window of any length holds more than promised."""
    async with World(acme=topic(qps=200, groups=1)) as world:
        await world.put_many(120)
        await world.node()
        await world.all_gone(30)
        chosen = [message.chosen for message in world.handled]
        assert 120 == len(chosen)
        assert excess(map(steady(200), chosen)) <= 2


async def test_waiting_for_quota_is_not_polling():
    """E10: a queue of one message in 100 s costs two looks, however long it waits."""
    async with World(slow=topic(qps=0.01, groups=1), acme=topic()) as world:
        scheduler = Counting()
        await world.put_many(3, project="slow")
        await world.node(scheduler=scheduler)
        await until(lambda: len(world.handled) == 1)
        alarm = world.nodes[0].dispatcher._alarm
        await until(lambda: alarm._timer is not None)
        before = scheduler.asked
        for _ in range(200):  # turns of the loop in which nothing happens
            await asyncio.sleep(0.001)
        assert before == scheduler.asked
        assert 90 * SECOND < alarm._at - now_ns() <= 100 * SECOND


async def test_a_token_is_spent_only_for_a_message_that_is_there():
    """E10: expired messages give theirs back, so the one that isn't expired goes at once."""
    async with World(acme=topic(qps=0.01, groups=1)) as world:
        for _ in range(50):
            await world.put(headers={"Evenlane-Expires": str(world.store.now() - 1)})
        own = await world.put(b"good")
        node = await world.node()
        await until(lambda: len(world.handled) == 1)
        assert [own] == world.ids
        assert 50 == node.counters.expired


async def test_a_raised_quota_acts_on_the_backlog():
    """X4: from one message in 100 s to 100,000 a second, and what waits is gone."""
    async with World(acme=topic(qps=0.01, groups=1)) as world:
        await world.put_many(500)
        node = await world.node()
        await until(lambda: len(world.handled) == 1)
        change(world, node, topic(groups=1))
        await world.all_gone()
        assert 500 == len(world.handled)


async def test_a_resumed_topic_goes_on():
    """X4: paused means nothing is handed out; resumed, without any other event, it goes on."""
    async with World(acme=topic(state="paused")) as world:
        await world.put_many(20)
        node = await world.node()
        await until(lambda: node.backlog == 20)
        assert [] == world.handled
        change(world, node, topic())
        await world.all_gone()


async def test_concurrency_is_a_cap_on_messages_in_flight():
    """X1: batches count each of their messages."""
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


async def test_a_slow_queue_holds_few_payloads():
    """E8, M: of a queue that gets two messages a second, some are at hand and the rest are sequences."""
    slow = complete(parse_spec(b'{"qps": 2, "groups": 1}'), ClusterConfig())
    async with World(slow=slow) as world:
        await world.put_many(1000, project="slow")
        node = await world.node()
        await until(lambda: node.backlog + len(world.handled) >= 999)
        (queue,) = node.queues.of("slow")
        assert len(queue.hand) <= 4


def test_twenty_thousand_tenants_in_150_mb():
    """E2, E16, M: a node's whole memory with 20,000 topics and a message of each, in a process of its own."""
    reported = subprocess.run(
        [sys.executable, "-m", "tests.support.node.many_tenants", "20000"], check=True, capture_output=True, text=True
    )
    assert int(reported.stdout) <= 150e6
