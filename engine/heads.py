"""The head of a queue: since when it waits, and where it lies if it isn't at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import headers as h
from engine.names import LaneId

if TYPE_CHECKING:
    from engine.index import Queue
    from engine.ports import Stored


def head_at(queue: Queue) -> int | None:
    """Since when the head waits, unix ns: a delayed one since it was due. None if it isn't at hand."""
    if not queue.hand:
        return None
    head = queue.hand[0]
    return h.number(head.headers, h.DUE, head.at)


def waits_since(message: Stored) -> int:
    """The same of a message that was read from the store."""
    return h.number(message.headers, h.DUE, message.at)


def place_of_head(queue: Queue) -> tuple[LaneId, int] | None:
    """Where the head lies of a queue with nothing at hand; None if it isn't known. Where it is in the spill, what
    stands at the spill's start may be another queue's message, which is but a little older.
    """
    if queue.due:
        return LaneId("later", queue.partition), queue.due.head
    if queue.waiting:
        return LaneId("lanes", queue.partition), queue.waiting.head
    if queue.spilled:
        return LaneId("lanes", queue.partition), queue.spill_from
    return None
