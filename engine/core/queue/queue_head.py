"""Finds the head of a queue: how long it has been waiting, and where it is if it isn't ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.names import LANE_KINDS, LaneId
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import read_instant

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Stored
    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.queue import Queue


def head_waits_since(queue: Queue) -> int | None:
    """The time since which the head waits, unix ns: its due time if it was delayed, else its arrival. None if the head
    isn't in memory.

    In an ordered topic with messages behind keys, the oldest of those counts as the head.
    """
    behind = _find_behind(queue)
    if behind is None:
        return since(queue.ready[0]) if queue.ready else None
    return None if isinstance(behind, MessageRef) else since(behind)


def _find_behind(queue: Queue) -> Entry | MessageRef | None:
    return queue.order.oldest() if queue.order is not None and queue.order.waiting else None


def since(entry: Entry) -> int:
    """The time since which a message waits, unix ns."""
    return read_instant(entry[3], h.DUE, entry[2]) if entry[0].later else entry[2]


def waits_since(message: Stored) -> int:
    """The time since which a message read from the store waits, unix ns."""
    return read_instant(message.headers, h.DUE, message.at)


def place_of_head(queue: Queue) -> tuple[LaneId, int] | None:
    """The lane and sequence of a head that isn't ready; None if unknown.

    In the spill, the message at the returned sequence may belong to another queue; it is only a little older than the
    head.
    """
    if (behind := _find_behind(queue)) is not None:
        return behind[0].id, behind[1]
    if queue.read is not None and queue.read.sequences:
        return LaneId(queue.read.kind, queue.partition), queue.read.sequences[0]
    for kind in reversed(LANE_KINDS):
        if line := queue.find_line(kind):
            return LaneId(kind, queue.partition), line.head
    if queue.spilled:
        return LaneId("lanes", queue.partition), queue.spill_from
    return None
