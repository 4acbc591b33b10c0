"""Spans of attempts, and of dead letters."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, get_current_span, set_span_in_context

from evenlane.engine.core.message.error_text import read_text, shorten
from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry, check_form
from evenlane.engine.core.wire import headers as h
from evenlane.engine.tracing import spans

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from types import TracebackType

    from evenlane.engine.core.message.message import Message

_LOST = "no sign of life for longer than ack_wait"


class AttemptTracer:
    """Makes a span for each attempt: `process acme`, a child of the put's span. So all attempts of a message, also
    those of its replay, are in one trace. A batch of several messages has a trace of its own, with a link to each put.

    With `error_texts` a span has the text and traceback of a handler's exception, otherwise its type.
    """

    def __init__(self, tracer: Any, *, error_texts: bool = True) -> None:
        self._tracer, self._error_texts = tracer, error_texts

    def trace_handler(self, call: Callable[[Any], Any], *, is_async: bool, batch: int | None) -> Callable[[Any], Any]:
        """A handler that runs `call` in a span. It is async if `call` is, and takes what `call` takes: a list with
        `batch`, otherwise one message.
        """

        @wraps(call)
        async def traced(given: Any) -> Any:
            with self._attempt(given, is_batch=batch is not None):
                return await call(given)

        @wraps(call)
        def traced_in_thread(given: Any) -> Any:
            with self._attempt(given, is_batch=batch is not None):
                return call(given)

        return traced if is_async else traced_in_thread

    def on_dead_letter(self, message: Message, reason: str) -> None:
        """A message has become a dead letter: a span without duration, next to those of its attempts."""
        span = self._tracer.start_span(
            f"dead-letter {message.project}",
            context=_context_of(message),
            kind=SpanKind.INTERNAL,
            attributes={
                **spans.attributes("dead-letter", message.project), **_attributes_of(message), spans.REASON: reason,
            },
        )  # fmt: skip
        spans.note_failure(span, reason)
        span.end()

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Set the headers of a request to the span of the attempt that makes it."""
        spans.inject(headers)

    def _attempt(self, given: Any, *, is_batch: bool) -> _Attempt:
        messages: Sequence[Message] = given if is_batch else [given]
        project = messages[0].project
        fields = spans.attributes("process", project)
        if is_batch:
            fields[spans.BATCH_SIZE] = len(messages)
        if len(messages) == 1:
            fields |= _attributes_of(messages[0])
            context, links = _context_of(messages[0]), []
        else:
            fields |= {spans.PRIORITY: messages[0].priority, spans.GROUP: messages[0].group}
            context, links = Context(), _links_to(messages)
        span = self._tracer.start_span(
            f"process {project}", context=context, kind=SpanKind.CONSUMER, attributes=fields, links=links
        )
        return _Attempt(span, messages, error_texts=self._error_texts)


class _Attempt:
    """The span of a handler's call, which is current while it runs. Handlers' own spans become its children."""

    def __init__(self, span: Any, messages: Sequence[Message], *, error_texts: bool) -> None:
        self._span, self._messages, self._error_texts = span, messages, error_texts

    def __enter__(self) -> Self:
        self._token = contexts.attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._token)
        if error is None:
            self._note_return()
        else:
            self._note(check_form(error))
        self._span.end()

    def _note_return(self) -> None:
        """Note a call that returned; a batch may have failed some of its messages, or all."""
        failures = [message.failure for message in self._messages if hasattr(message, "failure")]
        if failures:
            self._note(check_form(failures[0]))
            self._span.set_attribute(spans.FAILED, len(failures))
            if len(failures) < len(self._messages):
                self._span.set_attribute(spans.OUTCOME, "partly failed")
        elif self._timed_out:
            self._note_time_out()
        else:
            self._span.set_attribute(spans.OUTCOME, "success")

    @property
    def _timed_out(self) -> bool:
        return self._messages[0].timed_out

    def _note_time_out(self) -> None:
        self._span.set_attribute(spans.ERROR_TYPE, "HandlerTimedOut")
        self._span.set_attribute(spans.OUTCOME, "timed out")
        spans.note_failure(self._span, _LOST)

    def _note(self, error: BaseException) -> None:
        """Note what the handler raised. What it asks for is an event, and only a failure is an error."""
        span = self._span
        if isinstance(error, Retry | Pause):
            outcome = "retry" if isinstance(error, Retry) else "pause"
            span.add_event(outcome, {spans.AFTER: float(error.after), spans.REASON: self._text(error)})
        elif isinstance(error, Reject):
            outcome = "reject"
            span.add_event(outcome, {spans.REASON: self._text(error)})
        elif self._timed_out:
            self._note_time_out()
            return
        else:
            outcome = "failed"
            spans.note_error(span, error, with_text=self._error_texts)
        span.set_attribute(spans.OUTCOME, outcome)

    def _text(self, error: BaseException) -> str:
        return shorten(read_text(error)) if self._error_texts else type(error).__name__


def _attributes_of(message: Message) -> dict[str, Any]:
    return {
        spans.MESSAGE_ID: message.id,
        spans.BODY_SIZE: len(message.body),
        spans.PARTITION: str(message.partition),
        spans.ATTEMPT: message.attempt,
        spans.PRIORITY: message.priority,
        spans.GROUP: message.group,
    }


def _context_of(message: Message) -> Context:
    """The context of the put's span."""
    block = message.raw_headers
    carried = {name: text for name in (spans.PARENT, spans.STATE) if (text := h.value(block, name)) is not None}
    return spans.extract(carried)


def _links_to(messages: Sequence[Message]) -> list[Link]:
    put = [get_current_span(_context_of(message)).get_span_context() for message in messages]
    return [Link(context) for context in put if context.is_valid]
