"""E17 with real servers and an engine: messages reach their endpoint through a restart of the node."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.engine.push import handle
from evenlane.engine.runtime.engine import Engine
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env, tmp_path):
    """Settings of a node that may push to this machine, with one secret."""
    (tmp_path / "acme").write_text("s3cret")
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=4, node="pusher", http_port=None,
        push_private=True, push_secrets=tmp_path,
    )  # fmt: skip


@asynccontextmanager
async def node(settings):
    ready = asyncio.Event()
    async with Engine(handle, settings=settings, on_ready=lambda *_: ready.set()) as engine:
        running = asyncio.create_task(engine.run())
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield
        finally:
            engine.stop()
            assert await running, "all started messages are settled"


async def test_messages_reach_endpoint_through_restart(settings, receiver):
    """L: the endpoint asks the first node for a pause; the next node pushes the rest, in first attempts."""
    etcd = connections.etcd(settings)
    cluster_config = await agree_cluster_config(etcd, settings.env, {"partitions": 4})
    spec = f'{{"qps": 1000, "push": {{"url": "{receiver.url}/hook", "secret_ref": "acme"}}}}'
    await put_specs(etcd, settings.env, cluster_config, {"acme": spec})
    await etcd.close()
    taken = []

    async def at_most_50(request):
        if len(taken) == 50:
            return web.Response(status=429, headers={"Retry-After": "600"})
        taken.append(await request.read())
        return web.Response(status=202)

    receiver.behaviour = at_most_50
    async with Producer(settings=settings) as producer:
        await producer.put_many([Put("acme", b"%d" % n, headers={"traceparent": "t"}) for n in range(200)])
        async with node(settings):
            await until(lambda: len(receiver.seen) > 50)
        receiver.behaviour = None
        before = len(receiver.seen)
        async with node(settings):
            await until(lambda: len({seen.body for seen in receiver.seen[before:]}) >= 150)
    assert {b"%d" % n for n in range(200)} == {*taken, *(seen.body for seen in receiver.seen[before:])}
    assert {("1", "t", "/hook")} == {
        (seen.headers["evenlane-attempt"], seen.headers["traceparent"], seen.path) for seen in receiver.seen
    }
    assert all(seen.headers["webhook-signature"].startswith("v1,") for seen in receiver.seen)
