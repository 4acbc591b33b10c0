"""The log fields of a message or a lane: the same everywhere, and never the message's content.

A handler's exception is logged by its type, the start of its text, and the place where it was raised. Validation errors
quote the value that they reject, which is the payload: with `log_errors = "type"` the log has no text, and only the
dead letter has it, for those who may see messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.message.error_text import shorten

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message


def message_fields(message: Message) -> dict[str, Any]:
    return {
        "project": message.project, "id": shorten(message.id), "attempt": message.attempt,
        "partition": message.partition, "epoch": message.epoch,
    }  # fmt: skip


def lane_fields(lane: Lane) -> dict[str, Any]:
    return {"partition": lane.id.partition, "epoch": lane.epoch, "kind": lane.id.kind}
