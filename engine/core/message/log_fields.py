"""What a line of the log says of a message, a lane or a failure: the same fields everywhere, and never what a message
holds.

A handler's exception is told by its type and by where it was raised. Its text is not: validation errors, for one, quote
the value that they don't like, which is the payload. It is in the dead letter, which who may see messages may see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.message.error_text import cut

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message


def message_fields(message: Message) -> dict[str, Any]:
    return {
        "project": message.project, "id": cut(message.id), "attempt": message.attempt, "partition": message.partition,
        "epoch": message.epoch,
    }  # fmt: skip


def lane_fields(lane: Lane) -> dict[str, Any]:
    return {"partition": lane.id.partition, "epoch": lane.epoch, "kind": lane.id.kind}
