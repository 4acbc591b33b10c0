"""Waiting times of messages and running times of handlers in queues, histograms and rounds (X8, X9)."""

import asyncio
import time

from evenlane import Reject, Retry
from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry import metric_names
from evenlane.engine.telemetry.loop_lag import LoopLag, RecentMaximum
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.world import CLUSTER_CONFIG, World, topic
from tests.support.until import until

SECOND = 1_000_000_000


async def sampled(node, known=None):
    known = known or TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
    await QueueSampler(node, known).round(now_ns())
    return known


async def test_running_time_counts_while_the_handler_runs():
    """X9: its slot is busy now."""
    gate = asyncio.Event()

    async def handle(_message):
        await gate.wait()

    async with World(acme=topic()) as world:
        await world.put()
        node = await world.node(handle)
        await until(lambda: node.workers.busy == 1)
        known = await sampled(node)
        started = now_ns()
        await until(lambda: now_ns() > started + SECOND // 10)
        await sampled(node, known)
        half = known.counted["acme", 1].ran
        assert SECOND // 10 <= half <= now_ns() - started + SECOND
        assert 0 == sum(node.times.handling[1].counts)
        gate.set()
        await until(lambda: node.counters.handled == 1)
        await sampled(node, known)
        whole = node.times.handling[1].sum
        assert half <= whole
        assert whole == next(iter(node.queues.of_project("acme"))).stats.ran  # nothing counted twice, nothing left out


async def test_lost_partition_loses_no_counts():
    """E11, Z6: of a project's two queues, one leaves while both are handled, and its last handlers end afterwards."""
    gate, seen = asyncio.Event(), []

    async def handle(message):
        seen.append(message)
        if message.body == b"7" and message.partition == 1:
            await gate.wait()

    async with World(acme=topic(groups=2)) as world:
        for group in (0, 1):
            await world.put_many(40, group=group)
        node = await world.node(handle)
        known = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
        sampler = QueueSampler(node, known)
        sampler.open()
        try:
            await until(lambda: len(seen) > 45 and any(message.partition == 1 for message in node.in_flight))
            node.owned.stop_partition(1)
            node.queues.discard(1)
            gate.set()
            await until(lambda: not node.in_flight)
        finally:
            await sampler.close()
        assert node.counters.handled == sum(flow.handled for flow in known.counted.values())
        assert len(seen) == sum(flow.attempts for flow in known.counted.values())


async def test_dwell_of_a_delayed_message_counts_from_its_due_time():
    """K1."""
    async with World(acme=topic()) as world:
        due = world.store.now() + SECOND // 5
        await world.put(due=due)
        node = await world.node()
        await until(lambda: node.counters.handled == 1)
        assert node.times.dwell[1].sum <= world.store.now() - due
        assert 1 == sum(node.times.dwell[1].counts)


async def test_each_end_has_its_outcome():
    """K2, K4, K5: handled, retried and dead."""
    seen = []

    async def handle(message):
        seen.append(message.body)
        if message.body == b"bad":
            raise Reject("no")
        if message.body == b"later" and message.attempt == 1:
            raise Retry(0)

    async with World(acme=topic()) as world:
        for body in (b"good", b"bad", b"later"):
            await world.put(body)
        node = await world.node(handle)
        await until(lambda: node.counters.handled == 2 and node.counters.dead == 1)
        known = await sampled(node)
        flow = known.counted["acme", 1]
        assert {"handled": 2, "retried": 1, "dead": 1, "expired": 0, "dropped": 0} == {
            outcome: getattr(flow, outcome) for outcome in metric_names.OUTCOMES_OF
        }
        assert 4 == sum(node.times.dwell[1].counts) == sum(node.times.handling[1].counts)


def test_worst_delay_is_kept_for_10_to_20_seconds():
    worst = RecentMaximum(0)
    worst.note(5, SECOND)
    assert 5 == worst.maximum(11 * SECOND)
    worst.note(3, 12 * SECOND)
    assert 5 == worst.maximum(20 * SECOND)
    assert 3 == worst.maximum(21 * SECOND + 1)
    assert 0 == worst.maximum(60 * SECOND)


async def test_blocked_loop_has_a_lag():
    lag = LoopLag()
    lag.open()
    try:
        await until(lambda: lag.beats)
        time.sleep(0.2)  # blocks the loop
        await until(lambda: lag.seconds > 0.1)
    finally:
        lag.close()
