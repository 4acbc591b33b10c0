"""The names, attributes and contexts of spans, by the semantic conventions for messaging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from evenlane.engine.core.message.error_text import describe_error, format_traceback, read_text, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

PARENT, STATE = "traceparent", "tracestate"
OUTCOME, REASON, AFTER, DUPLICATE = "evenlane.outcome", "evenlane.reason", "evenlane.after", "evenlane.duplicate"
ATTEMPT, PRIORITY, GROUP = "evenlane.attempt", "evenlane.priority", "evenlane.group"
MESSAGE_ID, BODY_SIZE = "messaging.message.id", "messaging.message.body.size"
FAILED = "evenlane.failed"  # messages of a batch
BATCH_SIZE, PARTITION = "messaging.batch.message_count", "messaging.destination.partition.id"
ERROR_TYPE = "error.type"

# W3C's headers alone: baggage may be confidential, and a push would send it to the endpoint of a customer.
_W3C = TraceContextTextMapPropagator()


def extract(headers: Mapping[str, str]) -> Context:
    """The context that the headers carry; an empty one if they carry none."""
    return _W3C.extract(headers, Context())


def inject(headers: MutableMapping[str, str], context: Context | None = None) -> None:
    """Set the headers to the span of a context; by default of the current one."""
    _W3C.inject(headers, context)


def attributes(operation: str, project: str) -> dict[str, Any]:
    """The attributes that each span has. `operation` is its name and its type."""
    return {
        "messaging.system": "evenlane",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": project,
    }


def note_error(span: Any, error: BaseException, *, with_text: bool = True) -> None:
    """Record an error. Without `with_text` the span has its type alone."""
    kind = type(error).__name__
    span.set_attribute(ERROR_TYPE, kind)
    if not with_text:
        note_failure(span, kind)
        return
    # `Span.record_exception` would raise what an exception's own `__str__` raises
    fields = {"type": kind, "message": read_text(error), "stacktrace": format_traceback(error)}
    span.add_event("exception", {f"exception.{name}": text for name, text in fields.items()})
    note_failure(span, shorten(describe_error(error)))


def note_failure(span: Any, reason: str) -> None:
    """Give a span the status of an error, described by the reason."""
    span.set_status(Status(StatusCode.ERROR, reason))
