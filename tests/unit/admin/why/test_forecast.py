"""Forecasts and what then happens, on a running node in virtual time (X7)."""

import asyncio

import pytest

from evenlane.engine.admin.why.document import document
from evenlane.engine.admin.why.question import Question
from evenlane.engine.admin.why.responder import QueueInspector
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

QPS, ARRIVING, BACKLOG = 120, 40, 480  # gone in 9 s; rates are unknown for the first 3 s


def loop_ns():
    return round(asyncio.get_running_loop().time() * SECOND)


async def inspected(node):
    """Return the node's answer, once rates can be measured."""
    inspector, answers = QueueInspector(node, 0.1), []

    async def measured():
        answers.append(await inspector.inspect("acme"))
        return answers[-1].rates.seconds

    await until(measured)
    return answers[-1]


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
    clock = asyncio.get_running_loop().time
    began = clock()
    await until(lambda: node.backlog == 0, 20)
    return clock() - began


@in_virtual_time
async def test_forecast_is_right_within_a_fifth():
    """X7: messages arrive while the backlog is handled at the quota."""
    own = topic(qps=QPS, groups=3, burst=1)
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(BACKLOG // 2, group=group)
        node = await world.node()
        putting = asyncio.create_task(arriving(world))
        tenants = TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)
        sampling = QueueSampler(node, tenants)
        inspector = QueueInspector(node, 1.0)

        async def known():
            await sampling.round(loop_ns())
            return forecast(await inspector.inspect("acme"), own)["gone_in_seconds"]

        seconds = await until(known, 20)
        await sampling.round(loop_ns())
        scraped = tenants.table["acme", 1].empty_in
        took = await emptied(node)
        putting.cancel()
        assert 1 < took
        assert (took, took) == (pytest.approx(seconds, rel=0.2), pytest.approx(scraped, rel=0.2))


@in_virtual_time
async def test_named_quota_clears_the_backlog_in_time():
    """X7: and not long before."""
    own = topic(qps=20, groups=3, burst=1)
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(80, group=group)
        node = await world.node()
        await until(lambda: len(world.handled) > 3)
        named = forecast(await inspected(node), own, within=2.0)["qps_to_clear_within"]
        assert 100 <= named <= 130
        set_topic(world, node, qps=named)
        assert 2.0 == pytest.approx(await emptied(node), rel=0.2)


@in_virtual_time
async def test_forecast_of_a_paused_topic_is_right_once_it_resumes():
    """X7."""
    own = topic(qps=120, groups=3, burst=1, state="paused")
    async with World(acme=own) as world:
        for group in range(3):
            await world.put_many(80, group=group)
        node = await world.node()
        await until(lambda: node.backlog == 240)
        found = forecast(await inspected(node), own)
        assert (None, 2.0) == (found["gone_in_seconds"], found["resumed_gone_in_seconds"])
        set_topic(world, node, qps=120)
        assert 2.0 == pytest.approx(await emptied(node), rel=0.2)
