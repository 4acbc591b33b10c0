"""Spans of attempts, dead letters and replays, on a node with the store in memory."""

import asyncio
import threading

import pytest
import structlog
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import LogCapture

from evenlane import Evenlane, Message, Pause, Reject, Retry, add_message_fields, batch
from evenlane.engine.admin.dead_letters.client import DeadLetterClient
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.tracing.switch import find_attempt_tracer
from tests.support.app import Order, Running
from tests.support.node.keyed import QUICK
from tests.support.node.world import CLUSTER_CONFIG, World, topic
from tests.support.producer_world import accepted
from tests.support.spans import trace_of
from tests.support.until import until

PUT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
HEADERS = {"traceparent": PUT, "tracestate": "vendor=1"}


class FakeTopicCache:
    def get(self, _project: str):
        return accepted('{"qps": 400, "groups": 10, "spread": 2}')


@pytest.fixture
async def world():
    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as made:
        yield made


@pytest.fixture
def tracer(spans):
    return find_attempt_tracer("auto", spans.provider)


async def test_attempt_is_a_child_of_the_put(world, spans, tracer):
    message_id = await world.put(b"order", headers=HEADERS, priority="high", group=3)
    await world.node(tracer=tracer)
    await world.all_gone()
    span = spans.one("process acme")
    assert (SpanKind.CONSUMER, TRACE, PARENT) == (span.kind, trace_of(span), span.parent.span_id)
    assert "1" == span.context.trace_state["vendor"]
    assert StatusCode.UNSET is span.status.status_code
    assert {
        "messaging.system": "evenlane",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "acme",
        "messaging.destination.partition.id": str(world.partition_of(3)),
        "messaging.message.id": message_id,
        "messaging.message.body.size": 5,
        "evenlane.attempt": 1,
        "evenlane.priority": "high",
        "evenlane.group": 3,
        "evenlane.outcome": "success",
    } == dict(span.attributes)


async def test_attempts_dead_letter_and_replay_are_in_one_trace(world, spans, tracer):
    broken = [True]

    async def handle(_message):
        if broken:
            raise ValueError("no such order")

    await world.put(headers=HEADERS)
    await world.node(handle, tracer=tracer)
    await until(world.dead)
    await world.all_gone()
    broken.clear()
    client = DeadLetterClient(world.store, "online", FakeTopicCache(), CLUSTER_CONFIG)
    assert 1 == (await client.replay("acme")).replayed
    await until(lambda: len(spans.named("process acme")) == 3)
    assert {(TRACE, PARENT)} == {(trace_of(span), span.parent.span_id) for span in spans.ended}
    first, second, replayed = spans.named("process acme")
    assert [1, 2, 1] == [span.attributes["evenlane.attempt"] for span in (first, second, replayed)]
    assert ["failed", "failed", "success"] == [
        span.attributes["evenlane.outcome"] for span in (first, second, replayed)
    ]
    assert (StatusCode.ERROR, "ValueError: no such order") == (second.status.status_code, second.status.description)
    [event] = second.events
    assert ("exception", "no such order") == (event.name, event.attributes["exception.message"])
    assert "ValueError" == second.attributes["error.type"]
    dead = spans.one("dead-letter acme")
    assert (StatusCode.ERROR, "failed 2 times") == (dead.status.status_code, dead.attributes["evenlane.reason"])


@pytest.mark.parametrize("is_async", [True, False])
async def test_error_without_readable_text_is_recorded(world, spans, tracer, is_async):
    """It fails its attempt, as without traces."""

    class Mute(Exception):
        def __str__(self):
            raise SystemExit

    async def handle(_message):
        raise Mute

    def handle_in_thread(_message):
        raise Mute

    await world.put()
    await world.node(handle if is_async else handle_in_thread, tracer=tracer)
    await until(world.dead)
    await world.all_gone()
    [event] = spans.named("process acme")[0].events
    assert "(its text isn't available)" == event.attributes["exception.message"]


async def test_cautious_span_has_the_type_of_an_error_alone(world, spans):
    async def handle(_message):
        raise ValueError("S3CRET")

    await world.put()
    await world.node(handle, tracer=find_attempt_tracer("auto", spans.provider, error_texts=False))
    await until(world.dead)
    assert {"ValueError"} == {span.attributes["error.type"] for span in spans.named("process acme")}
    assert "S3CRET" not in "".join(span.to_json() for span in spans.ended)


@pytest.mark.parametrize(
    ("error", "event", "attributes"),
    [
        (Retry(0.01, "later"), "retry", {"evenlane.after": 0.01, "evenlane.reason": "later"}),
        (Pause(0.01, "quiet"), "pause", {"evenlane.after": 0.01, "evenlane.reason": "quiet"}),
        (Reject("no"), "reject", {"evenlane.reason": "no"}),
    ],
)
async def test_request_of_a_handler_is_an_event_and_no_error(world, spans, tracer, error, event, attributes):
    left = [error]

    async def handle(_message):
        if left:
            raise left.pop()

    await world.put()
    await world.node(handle, tracer=tracer)
    await until(lambda: spans.named("process acme"))
    first = spans.named("process acme")[0]
    assert [(event, attributes)] == [(each.name, dict(each.attributes)) for each in first.events]
    assert (event, StatusCode.UNSET) == (first.attributes["evenlane.outcome"], first.status.status_code)


async def test_handler_that_times_out_ends_its_span_with_an_error(spans, tracer):
    async def handle(_message):
        await asyncio.Event().wait()

    async with World(acme=topic(max_attempts=1, ack_wait=0.1)) as world:
        await world.put()
        await world.node(handle, tracer=tracer)
        await until(world.dead)
    span = spans.one("process acme")
    assert ("timed out", StatusCode.ERROR) == (span.attributes["evenlane.outcome"], span.status.status_code)


@pytest.mark.parametrize(("failed", "outcome"), [(1, "partly failed"), (2, "failed")])
async def test_batch_that_fails_some_of_its_messages_ends_its_span_with_the_error(
    world, spans, tracer, failed, outcome
):
    async def handle(messages):
        for message in messages[:failed]:
            message.fail(Reject("no") if failed == 1 else ValueError("boom"))

    await world.put_many(2)
    await world.node(batch(max=2)(handle), concurrency=1, tracer=tracer)
    await until(lambda: spans.named("process acme"))
    span = spans.named("process acme")[0]
    assert (outcome, failed) == (span.attributes["evenlane.outcome"], span.attributes["evenlane.failed"])


async def test_batch_has_a_trace_of_its_own_with_links(world, spans, tracer):
    sizes = []

    async def handle(messages):
        sizes.append(len(messages))

    await world.put_many(2, headers=HEADERS)
    await world.put()  # without a trace
    await world.node(batch(max=3)(handle), concurrency=1, tracer=tracer)
    await world.all_gone()
    span = spans.one("process acme")
    assert [3] == sizes
    assert (3, None, True) == (
        span.attributes["messaging.batch.message_count"], span.parent, trace_of(span) != TRACE,
    )  # fmt: skip
    assert [PARENT, PARENT] == [link.context.span_id for link in span.links]
    assert "messaging.message.id" not in span.attributes


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_handlers_own_span_is_a_child_of_the_attempt(world, spans, tracer, kind):
    own = spans.provider.get_tracer("shop")

    def work():
        with own.start_as_current_span(threading.current_thread().name.split()[0]):
            pass

    async def handle(_message):
        await asyncio.create_task(asyncio.to_thread(work))

    def handle_in_thread(_message):
        work()

    await world.put()
    await world.node(handle if kind == "async" else handle_in_thread, tracer=tracer)
    await world.all_gone()
    attempt = spans.one("process acme")
    [child] = [span for span in spans.ended if span.name != "process acme"]
    assert attempt.context.span_id == child.parent.span_id


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_fallback_has_a_span(world, spans, tracer, kind):
    async def fail(_message):
        raise ValueError

    async def fallback(_message):
        pass

    await world.put(headers=HEADERS)
    plain = Handler.of(fallback if kind == "async" else lambda _message: None)
    await world.node(fail, fallback=plain, tracer=tracer)
    await world.all_gone()
    assert ["failed", "failed", "success"] == [
        span.attributes["evenlane.outcome"] for span in spans.named("process acme")
    ]
    assert {TRACE} == {trace_of(span) for span in spans.ended}


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "x" * 2_000])
async def test_header_that_is_no_context_begins_a_trace(world, spans, tracer, header):
    await world.put(headers={"traceparent": header})
    await world.node(tracer=tracer)
    await world.all_gone()
    assert spans.one("process acme").parent is None


async def test_lines_of_a_handler_have_the_ids_of_the_span(world, spans, tracer):
    async def handle(_message):
        structlog.get_logger().info("own")

    capture = LogCapture()
    structlog.configure(processors=[add_message_fields, capture])
    try:
        await world.put(headers=HEADERS)
        await world.node(handle, tracer=tracer)
        await world.all_gone()
    finally:
        structlog.reset_defaults()
    [line] = [line for line in capture.entries if line["event"] == "own"]
    span = spans.one("process acme")
    assert (f"{TRACE:032x}", f"{span.context.span_id:016x}") == (line["trace_id"], line["span_id"])


async def test_push_is_traced_like_a_handler(spans, tracer):
    """The headers of its request are those of the attempt."""
    sent = {}

    async def push(_message):
        tracer.inject(sent)

    async with World(acme=topic(push={"url": "https://shop.example/in"})) as world:
        await world.put(headers=HEADERS)
        await world.node(push=push, tracer=tracer)
        await world.all_gone()
    span = spans.one("process acme")
    assert f"00-{TRACE:032x}-{span.context.span_id:016x}-01" == sent["traceparent"]
    assert "vendor=1" == sent["tracestate"]


async def test_node_without_a_tracer_calls_the_handler_itself(world):
    async def handle(_message):
        pass

    node = await world.node(handle)
    await world.put()
    await world.all_gone()
    assert {handle} == {queue.rules.call for queue in node.queues.of_project("acme")}


@pytest.mark.parametrize("is_async", [True, False])
async def test_application_is_traced_with_its_middleware_and_bodies(spans, tracer, is_async):
    """A body that doesn't fit is a rejection in the span."""
    app, seen = Evenlane(), []

    async def bill(message: Message[Order]):
        seen.append(message.data)

    def bill_plainly(message: Message[Order]):
        seen.append(message.data)

    @app.middleware
    async def around(message, call_next):
        await call_next(message)

    app.handler("acme")(bill if is_async else bill_plainly)
    async with Running(app, "acme", tracer=tracer) as running:
        await running.put("acme", b'{"id": 1, "amount": 2}', headers=HEADERS)
        await running.all_gone()
        assert TRACE == trace_of(spans.one("process acme"))
        await running.put("acme", b"{}", headers=HEADERS)
        await running.all_gone()
    assert [Order(1, 2)] == seen
    rejected = [span for span in spans.named("process acme") if "reject" in {event.name for event in span.events}]
    assert 1 == len(rejected)
