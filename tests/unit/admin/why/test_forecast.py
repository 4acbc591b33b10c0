"""Forecasts and what then happens, on a running node (X7)."""

import asyncio

import pytest

from evenlane.engine.admin.why.document import Question, document
from evenlane.engine.admin.why.responder import QueueInspector
from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.gated import looked
from tests.support.node.world import CLUSTER_CONFIG, World, topic
from tests.support.until import until

pytestmark = pytest.mark.full  # in real time

QPS, ARRIVING, BACKLOG = 120, 40, 480  # gone in 9 s; rates are unknown for the first 3 s


def forecast(answer, own, within=None):
    """Return the forecast of `why`."""
    question = Question(
        project="acme", env="online", at=0, priorities=CLUSTER_CONFIG.priorities, topic=own,
        max_group_qps=CLUSTER_CONFIG.max_group_qps, within=within,
    )  # fmt: skip
    return document(question, [answer])["forecast"]


async def arriving(world):
    """Put `ARRIVING` messages per second until cancelled."""
    began, put = asyncio.get_running_loop().time(), 0
    while True:
        due = int((asyncio.get_running_loop().time() - began) * ARRIVING)
        await world.put_many(due - put, group=put % 3)
        put = due
        await asyncio.sleep(0.02)


def set_topic(world, node, qps):
    world.topics["acme"] = topic(qps=qps, groups=3, burst=1)
    node.on_topic_change("acme", world.topics["acme"])


async def emptied(node):
    """Return the seconds until the backlog is empty."""
    began = now_ns()
    await until(lambda: node.backlog == 0, 20)
    return (now_ns() - began) / 1e9


async def test_forecast_is_right_within_a_fifth():
    """X7: messages arrive while the backlog is handled at the quota."""
    own = topic(qps=QPS, groups=3, burst=1)
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(BACKLOG // 2, group=group)
        node = await world.node()
        putting = asyncio.create_task(arriving(world))
        await until(lambda: node.backlog <= BACKLOG + ARRIVING, 20)
        tenants = TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)
        sampling = QueueSampler(node, tenants)
        inspector = QueueInspector(node, 1.0)

        async def known():
            await sampling.round(now_ns())
            return forecast(await inspector.inspect("acme"), own)["gone_in_seconds"]

        seconds = await until(known, 20)
        await sampling.round(now_ns())
        scraped = tenants.table["acme", 1].empty_in
        took = await emptied(node)
        putting.cancel()
        assert 1 < took
        assert (took, took) == (pytest.approx(seconds, rel=0.2), pytest.approx(scraped, rel=0.2))


async def test_named_quota_clears_the_backlog_in_time():
    """X7: and not long before."""
    own = topic(qps=20, groups=3, burst=1)
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(80, group=group)
        node = await world.node()
        await until(lambda: len(world.handled) > 3)
        named = forecast(await looked(node), own, within=2.0)["qps_to_clear_within"]
        assert 100 <= named <= 130
        set_topic(world, node, qps=named)
        assert 2.0 == pytest.approx(await emptied(node), rel=0.2)


async def test_forecast_of_a_paused_topic_is_right_once_it_resumes():
    """X7."""
    own = topic(qps=120, groups=3, burst=1, state="paused")
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(80, group=group)
        node = await world.node()
        await until(lambda: node.backlog == 240)
        found = forecast(await looked(node), own)
        assert (None, 2.0) == (found["gone_in_seconds"], found["resumed_gone_in_seconds"])
        set_topic(world, node, qps=120)
        assert 2.0 == pytest.approx(await emptied(node), rel=0.2)
