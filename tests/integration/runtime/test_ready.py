"""When nodes on real servers say that they are ready."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from structlog.testing import capture_logs

from evenlane import Engine, Settings
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env):
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=2, storage="memory", http_port=0
    )


@asynccontextmanager
async def started(settings, node):
    """An engine that runs, and its calls of `on_ready`."""
    calls = []
    async with Engine(print, settings=replace(settings, node=node), on_ready=lambda *now: calls.append(now)) as engine:
        running = asyncio.create_task(engine.run())
        try:
            yield engine, calls
        finally:
            engine.stop()
            await running


async def test_node_is_ready_with_its_partitions_or_on_standby(settings):
    """P5, Z3: the third of three nodes on two partitions stands by, in words."""
    with capture_logs() as log:
        async with started(settings, "a") as (_, first):
            await until(lambda: first)
            async with started(settings, "b") as (_, second):
                await until(lambda: second)
                async with started(settings, "c") as (_, third):
                    await until(lambda: third)
    assert [2, 1, 0] == [calls[0][0] for calls in (first, second, third)]
    assert 0 not in {calls[0][1] for calls in (first, second, third)}, "the generation of a plan"
    assert third[0][1] in {line["generation"] for line in log if line["event"] == "standing by"}


async def test_node_waits_for_a_leader(settings):
    """P4: until a plan comes the node isn't ready, and says why."""
    etcd = connections.etcd(settings)
    lease = await etcd.grant(600)
    await etcd.put(names.key(settings.env, "leader"), b'{"id": "gone"}', lease)

    async def reason(engine):
        async with aiohttp.ClientSession() as session, session.get(f"{engine.http.address}/readyz") as answer:
            return answer.status, (await answer.json()).get("error")

    async def waits():
        return await reason(engine) == (503, "it waits for a leader to plan partitions for it")

    async with started(settings, "a") as (engine, calls):
        await until(waits)
        assert [] == calls
        await etcd.revoke(lease)
        await until(lambda: calls)
        assert (200, None) == await until(lambda: reason(engine))
    assert 2 == calls[0][0]
    await etcd.close()
