"""Adds the fields of a handler's messages to its log lines, for structlog and for the standard library's logging."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.handled import find_handled
from evenlane.engine.base.short_text import shorten

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger


def add_message_fields(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    """A processor of structlog. In a handler it adds `project`, `id` and `attempt` of the message; of a batch `project`
    and `messages`, their number. Inside a span of OpenTelemetry it adds `trace_id` and `span_id`, too.

    Values that a line already has stay. Lines outside of a handler don't change.
    """
    for name, value in _fields().items():
        event_dict.setdefault(name, value)
    return event_dict


class MessageFilter(logging.Filter):
    """A filter of `logging` that lets all records pass. In a handler it gives a record the attributes `project`, `id`,
    `attempt`, and the others of `add_message_fields`.

    Add it to a handler of `logging`, not to a logger, which doesn't filter the records of its children.
    """

    def __init__(self) -> None:
        super().__init__()

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def _fields() -> dict[str, Any]:
    messages = find_handled()
    if not messages:
        return {}
    first = messages[0]
    if len(messages) == 1:
        fields = {"project": first.project, "id": shorten(first.id), "attempt": first.attempt}
    else:
        fields = {"project": first.project, "messages": len(messages)}
    return fields | _trace_fields()


def _trace_fields() -> dict[str, str]:
    """The ids of the current span, if the program uses OpenTelemetry at all."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(span.trace_id), "span_id": trace.format_span_id(span.span_id)}
