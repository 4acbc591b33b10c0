"""Requeues messages of a lane that a previous owner held and did not handle. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MessageRef

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue


def requeue(lane: FedLane, sequences: Iterable[int], now: int) -> list[Queue]:
    """Release held messages as `Lane.release` does, and requeue those that the feed has already delivered. Returns the
    queues that gained messages.
    """
    touched: dict[int, Queue] = {}
    for subject, sequence in lane.release(sequences, now):
        queue = lane.queue_of(subject)
        if queue is not None:
            _to_head(lane, queue, sequence)
            touched[id(queue)] = queue
    return list(touched.values())


def _to_head(lane: FedLane, queue: Queue, sequence: int) -> None:
    """Requeue a message that was handed out on another node, and not handled: at the head of its queue, among the due
    messages if it is delayed, or in the spill if the spill begins before it.
    """
    place = MessageRef(lane, sequence)
    if queue.order is not None and queue.order.is_out(place):
        queue.order.next.append(place)
        queue.behind = True
    elif lane.later:
        queue.add_due(lane.id.kind, sequence)
    elif queue.spilled and sequence >= queue.spill_from:
        queue.spill(sequence)  # the refill of the spill finds it by its subject
    else:
        queue.requeue_sequences(lane.id.kind, [sequence])
