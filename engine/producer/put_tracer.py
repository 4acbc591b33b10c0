"""Spans of puts."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace
from opentelemetry.trace import SpanKind, set_span_in_context

from evenlane.engine.core.ports import Receipt
from evenlane.engine.producer.put import Put
from evenlane.engine.tracing import spans

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from evenlane.engine.producer.put import Outcome


class PutTracer:
    """Makes a span for each put, `send acme`, and sends its context with the message, for the spans of attempts.

    A put with a `traceparent` of its own keeps it: its span becomes a child of that context, as the attempts do.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    async def deliver(self, put: Put, send: Callable[[Put], Awaitable[Receipt]]) -> Receipt:
        """`send` a put in its span. Raises what `send` raises."""
        span, put = self.begin(put)
        try:
            receipt = await send(put)
        except BaseException as error:
            spans.note_error(span, error)
            span.end()
            raise
        end(span, receipt)
        return receipt

    def begin(self, put: Put) -> tuple[Any, Put]:
        """Start the span of a put. Returns it, and the put with its context. A put that isn't valid, which users may
        pass, stays as it is.
        """
        project = put.project if isinstance(put.project, str) else ""
        fields = spans.attributes("send", project)
        if isinstance(put.id, str):
            fields[spans.MESSAGE_ID] = put.id
        if isinstance(put.priority, str):
            fields[spans.PRIORITY] = put.priority
        if isinstance(put.body, bytes):
            fields[spans.BODY_SIZE] = len(put.body)
        given = put.headers if isinstance(put.headers, Mapping) else {}
        is_traced = spans.PARENT in given
        is_text = is_traced and all(isinstance(given.get(name, ""), str) for name in (spans.PARENT, spans.STATE))
        context = spans.extract(given) if is_text else None
        span = self._tracer.start_span(f"send {project}", context=context, kind=SpanKind.PRODUCER, attributes=fields)
        if is_traced or (put.headers is not None and not isinstance(put.headers, Mapping)):
            return span, put
        headers = dict(given)
        spans.inject(headers, set_span_in_context(span))
        return span, replace(put, headers=headers)

    def batch(self, done: Callable[[int, Outcome], None]) -> TracedBatch:
        """The spans of one `put_each`."""
        return TracedBatch(self, done)


class TracedBatch:
    """Gives each put of a batch its span, and ends it before `done` is called. At its exit the spans of abandoned puts
    end.

    Invariant: `_open` has the span of each put that was taken and has no outcome, by its number.
    """

    def __init__(self, tracer: PutTracer, done: Callable[[int, Outcome], None]) -> None:
        self._tracer, self._done = tracer, done
        self._count = 0
        self._open: dict[int, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for span in self._open.values():
            spans.note_failure(span, "abandoned: it may or may not be stored")
            span.end()
        self._open.clear()

    def trace(self, puts: Iterable[Put] | AsyncIterable[Put]) -> Iterable[Put] | AsyncIterable[Put]:
        """The same puts, each with the context of its span."""
        return self._trace_later(puts) if isinstance(puts, AsyncIterable) else self._trace_now(puts)

    def done(self, number: int, outcome: Outcome) -> None:
        span = self._open.pop(number, None)
        if span is not None:
            end(span, outcome)
        self._done(number, outcome)

    def _trace_now(self, puts: Iterable[Put]) -> Iterator[Put]:
        for put in puts:
            yield self._begin(put)

    async def _trace_later(self, puts: AsyncIterable[Put]) -> AsyncIterator[Put]:
        async for put in puts:
            yield self._begin(put)

    def _begin(self, put: Put) -> Put:
        number = self._count
        self._count += 1
        if not isinstance(put, Put):  # a user's mistake, which is its outcome
            return put
        self._open[number], put = self._tracer.begin(put)
        return put


def end(span: Any, outcome: Outcome) -> None:
    """End the span of a put with its receipt or error."""
    if not isinstance(outcome, Receipt):
        spans.note_error(span, outcome)
    elif outcome.duplicate:
        span.set_attribute(spans.DUPLICATE, True)
    span.end()
