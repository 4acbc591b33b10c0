"""Spans of puts."""

import asyncio

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from evenlane import Put, Settings, SyncProducer, UnknownProject
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, ProducerClosed
from tests.support.producer_world import CLUSTER_CONFIG, ProducerWorld
from tests.support.spans import trace_of, traceparent


@pytest.fixture
async def world():
    made = ProducerWorld()
    await made.store.open()
    yield made
    await made.store.close()


@pytest.fixture
async def producer(world, spans):
    async with world.producer(tracer_provider=spans.provider) as made:
        yield made


def sent(world) -> list[str | None]:
    return [h.value(message.headers, "traceparent") for message in world.stored()]


async def test_put_sends_the_context_of_its_span(world, spans, producer):
    await producer.put("acme", b"order", id="o-1", priority="high", headers={"X-Kind": "order"})
    span = spans.one("send acme")
    assert SpanKind.PRODUCER is span.kind
    assert {
        "messaging.system": "evenlane",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "acme",
        "messaging.message.id": "o-1",
        "messaging.message.body.size": 5,
        "evenlane.priority": "high",
    } == dict(span.attributes)
    assert [traceparent(span)] == sent(world)
    assert "order" == h.value(world.stored()[0].headers, "X-Kind")


async def test_put_is_a_child_of_the_callers_span(spans, producer):
    with spans.provider.get_tracer("shop").start_as_current_span("request") as request:
        await producer.put("acme", b"x")
    assert request.get_span_context().span_id == spans.one("send acme").parent.span_id


async def test_put_keeps_a_context_of_its_own(world, spans, producer):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await producer.put("acme", b"x", headers={"traceparent": given})
    assert [given] == sent(world)
    assert 0x0AF7651916CD43DD8448EB211C80319C == trace_of(spans.one("send acme"))


async def test_callers_headers_stay_as_they_are(producer):
    headers = {"X-Kind": "order"}
    put = Put("acme", b"x", headers=headers)
    await producer.put("acme", b"x", headers=headers)
    await producer.put_many([put])
    assert ({"X-Kind": "order"}, headers) == (headers, put.headers)


async def test_failed_put_ends_its_span_with_the_error(spans, producer):
    with pytest.raises(UnknownProject):
        await producer.put("nobody", b"x")
    span = spans.one("send nobody")
    assert ("UnknownProject", StatusCode.ERROR) == (span.attributes["error.type"], span.status.status_code)


@pytest.mark.parametrize("headers", [["a"], {"Nats-X": "1"}, {1: "a"}, {"traceparent": 5}])
async def test_invalid_put_raises_the_same_error_as_without_traces(world, producer, headers):
    async with world.producer() as plain:
        with pytest.raises(Exception) as expected:  # noqa: PT011 - compared below
            await plain.put("acme", b"x", headers=headers)
    with pytest.raises(type(expected.value)) as found:
        await producer.put("acme", b"x", headers=headers)
    assert str(expected.value) == str(found.value)


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_put_of_a_batch_has_its_span(world, spans, producer, is_async):
    puts = [Put("acme", b"1"), Put("nobody", b"2"), Put("acme", b"3")]

    async def later():
        for put in puts:
            yield put

    outcomes = await producer.put_many(later() if is_async else puts)
    assert [False, True, False] == [isinstance(outcome, Exception) for outcome in outcomes]
    good = spans.named("send acme")
    assert sorted(map(traceparent, good)) == sorted(sent(world))
    assert {StatusCode.UNSET} == {span.status.status_code for span in good}
    assert StatusCode.ERROR is spans.one("send nobody").status.status_code


async def test_spans_of_abandoned_puts_end(spans, producer):
    def puts():
        yield Put("acme", b"1")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await producer.put_many(puts())
    assert spans.one("send acme").status.description.startswith("abandoned")


async def test_producer_without_a_provider_sends_no_context(world):
    async with world.producer() as producer:
        await producer.put("acme", b"x")
        await producer.put_many([Put("acme", b"y")])
    assert [None, None] == sent(world)


async def test_closed_producer_refuses_puts(producer):
    await producer.close()
    with pytest.raises(ProducerClosed):
        await producer.put("acme", b"x")
    with pytest.raises(ProducerClosed):
        await producer.put_many([Put("acme", b"x")])


async def test_name_that_is_no_project_is_refused(producer):
    with pytest.raises((InvalidName, UnknownProject, TypeError)):
        await producer.put(7, b"x")


async def test_what_is_no_put_gets_its_own_outcome(world, spans, producer):
    outcomes = await producer.put_many([Put("acme", b"1"), None, Put("acme", b"2")])
    assert "a put needs an evenlane.Put, and this is of type NoneType" == str(outcomes[1])
    assert 2 == len(spans.named("send acme")) == len(world.stored())


def test_puts_of_a_thread_are_children_of_its_span(spans):
    """The producer's event loop runs in a thread of its own, which has no span."""
    world = ProducerWorld()
    asyncio.run(world.store.open())
    given = {"settings": Settings(env=world.env), "store": world.store, "topics": world.topics, "facts": CLUSTER_CONFIG}
    with SyncProducer(**given, tracer_provider=spans.provider) as producer:
        producer.put("acme", b"no span here")
        with spans.provider.get_tracer("shop").start_as_current_span("request") as request:
            producer.put("acme", b"1")
            producer.put_many([Put("acme", b"2"), Put("acme", b"3")])
    first, *others = spans.named("send acme")
    assert first.parent is None
    assert [request.get_span_context().span_id] * 3 == [each.parent.span_id for each in others]
