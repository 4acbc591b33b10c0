"""The head of a queue: since when it waits, and where it lies if it isn't at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import instant

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Stored
    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.queue import Queue


def queue_head(queue: Queue) -> int | None:
    """Since when the head waits, unix ns: a delayed one since it was due. None if it isn't at hand. In an ordered topic
    it is what has waited longest behind its key.
    """
    behind = _behind(queue)
    if behind is None:
        return since(queue.hand[0]) if queue.hand else None
    return None if isinstance(behind, MessageRef) else since(behind)


def _behind(queue: Queue) -> Entry | MessageRef | None:
    return queue.order.oldest() if queue.order is not None and queue.order.waiting else None


def since(entry: Entry) -> int:
    """Since when a message waits, unix ns."""
    return instant(entry[3], h.DUE, entry[2]) if entry[0].later else entry[2]


def waits_since(message: Stored) -> int:
    """The same of one that was read from the store."""
    return instant(message.headers, h.DUE, message.at)


def place_of_head(queue: Queue) -> tuple[LaneId, int] | None:
    """Where the head lies of a queue of which it isn't at hand; None if it isn't known. Where it is in the spill, what
    stands at the spill's start may be another queue's message, which is but a little older.
    """
    if (behind := _behind(queue)) is not None:
        return behind[0].id, behind[1]
    if queue.reading:
        return LaneId("later" if queue.reading_due else "lanes", queue.partition), queue.reading[0]
    if queue.due:
        return LaneId("later", queue.partition), queue.due.head
    if queue.waiting:
        return LaneId("lanes", queue.partition), queue.waiting.head
    if queue.spilled:
        return LaneId("lanes", queue.partition), queue.spill_from
    return None
