"""Traces on real servers: a put and all attempts of its message are one trace."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane import Engine, Producer, Settings
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from tests.support.push.receiver import receiving
from tests.support.spans import Spans, trace_of, traceparent
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env):
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=2, node="traced", push_private=True
    )


async def set_topic(settings, spec):
    etcd = connections.etcd(settings)
    cluster_config = await agree_cluster_config(etcd, settings.env, {"partitions": 2})
    await put_specs(etcd, settings.env, cluster_config, {"acme": spec})
    await etcd.close()


@asynccontextmanager
async def node(handle, settings, spans):
    ready = asyncio.Event()
    given = {"settings": settings, "on_ready": lambda *_: ready.set(), "tracer_provider": spans.provider}
    async with Engine(handle, **given) as engine:
        running = asyncio.create_task(engine.run())
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield
        finally:
            engine.stop()
            assert await running, "all started messages are settled"


async def test_put_and_both_attempts_are_one_trace(settings):
    await set_topic(settings, '{"qps": 100, "backoff": {"base": 0.05}}')
    spans = Spans()

    async def handle(message):
        if message.attempt == 1:
            raise ValueError("not yet")

    async with Producer(settings=settings, tracer_provider=spans.provider) as producer:
        await producer.put("acme", b"order")
    async with node(handle, settings, spans):
        await until(lambda: len(spans.named("process acme")) == 2)
    put = spans.one("send acme")
    assert [(1, "failed"), (2, "success")] == [
        (span.attributes["evenlane.attempt"], span.attributes["evenlane.outcome"])
        for span in spans.named("process acme")
    ]
    assert {trace_of(put)} == {trace_of(span) for span in spans.ended}
    assert {put.context.span_id} == {span.parent.span_id for span in spans.named("process acme")}


async def test_endpoint_gets_the_context_of_the_attempt(settings):
    """In place of the put's, which the message carries."""
    spans = Spans()
    async with receiving() as receiver:
        await set_topic(settings, f'{{"qps": 100, "push": {{"url": "{receiver.url}/hook"}}}}')
        async with Producer(settings=settings, tracer_provider=spans.provider) as producer:
            await producer.put("acme", b"order")
        async with node(print, settings, spans):
            await until(lambda: spans.named("process acme"))
    assert [traceparent(spans.one("process acme"))] == [seen.headers["traceparent"] for seen in receiver.seen]
    assert trace_of(spans.one("send acme")) == trace_of(spans.one("process acme"))
