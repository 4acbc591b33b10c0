"""Clears a queue without handing out its messages: of payloads, of all messages, or of those of one lane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue


def unload(queue: Queue, limits: MemoryBudget) -> None:
    """Unload the payloads and keep the sequences: the queue won't be served for a while.

    A read under way is cancelled: its messages would otherwise become ready ahead of the unloaded ones.
    """
    entries = _take_ready(queue, limits)
    read, queue.read = queue.read, None
    if read is not None:
        queue.fail_read(read)
    if queue.order is not None:
        queue.order.drop_payloads(limits)
        turns = [place for entry in entries if queue.order.is_out(place := MessageRef(*entry[:2]))]
        queue.order.next[:0] = turns
        entries = [entry for entry in entries if not queue.order.is_out(MessageRef(*entry[:2]))]
    queue.requeue_all(entries)
    queue.behind = bool(queue.unread or queue.spilled)


def drain(queue: Queue, lanes: Iterable[Lane], limits: MemoryBudget) -> list[MessageRef]:
    """Remove and return all messages of a partition's `lanes` whose sequence is known. The spill stays."""
    unload(queue, limits)
    places: list[MessageRef] = []
    for lane in lanes:
        if line := queue.find_line(lane.id.kind):
            places += [MessageRef(lane, sequence) for sequence in line.take(len(line))]
    if queue.order is not None:
        places += queue.order.drain(limits)
        for place in places:  # free the keys of these, too: nothing waits behind them any more
            queue.order.free_key(place, limits)
    queue.behind = bool(queue.spilled)
    return places


def discard(queue: Queue, lane: Lane, limits: MemoryBudget) -> None:
    """Drop all messages of a lane whose stream was replaced."""
    following = queue.order.discard(lane, limits) if queue.order is not None else []
    for entry in _take_ready(queue, limits):
        if entry[0] is not lane:
            queue.hold(entry, limits)
    kind = lane.id.kind
    if queue.read is not None and queue.read.kind == kind:
        queue.read = None
    if kind == "later":
        queue.due = None
    elif kind == "again":
        queue.again = None
    else:
        queue.waiting.clear()
        queue.spilled = queue.spill_from = 0
    for each in reversed(following):
        queue.requeue(each, limits)
    queue.behind = bool(queue.unread or queue.spilled)


def _take_ready(queue: Queue, limits: MemoryBudget) -> list[Entry]:
    """Remove and return the ready messages."""
    entries, queue.ready = queue.ready, []
    limits.used_bytes -= queue.ready_bytes
    queue.ready_bytes = 0
    return entries
