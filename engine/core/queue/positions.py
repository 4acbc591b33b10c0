"""Finds how far a lane and its queues have come: the positions that docs/reference/positions.md defines (E11). Pure.

Nothing is counted for this: everything is read from the state that a node has anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue


class LanePosition(NamedTuple):
    """The position of a lane. `end` is its last sequence, `settled` the last one up to which every message is durably
    settled, `purged` the last one up to which the stream was purged.

    Invariant: purged <= settled <= end.
    """

    end: int
    settled: int
    purged: int


class QueuePosition(NamedTuple):
    """The position of a queue in its lane. `head` is the first message that hasn't ended, `next` the first one that
    waits (None: none does), `end` the last one that hasn't ended. If all have ended, `end` is the sequence up to which
    the lane is known, and `head` is `end + 1`. Every message below `head` has ended.

    Invariant: head <= next <= end, or head == end + 1.
    """

    head: int
    next: int | None
    end: int


def locate_lane(lane: FedLane) -> LanePosition | None:
    """The lane's position. None while its owner doesn't know the lane up to the end that it had at the takeover."""
    if not lane.log.has_begun or lane.fenced or lane.is_catching_up or lane.position < lane.high:
        return None
    return LanePosition(lane.high, lane.removal.durable_watermark, lane.removal.purged)


def locate_queue(queue: Queue, lane: FedLane, subject: bytes, out: Iterable[int]) -> QueuePosition | None:
    """The position of the queue that `subject` has in `lane`. None while part of its backlog hasn't been delivered.

    `out` are its messages in this lane that were taken from the queue: they are being handled, rest before their next
    attempt, or their copy isn't stored yet. Takes O(messages whose sequence is in memory).
    """
    if not lane.log.has_begun or lane.fenced or not _is_delivered(lane, subject):
        return None
    known = [*iter_known(queue, lane)]
    if lane.dropped:
        known = [sequence for sequence in known if sequence not in lane.dropped]
    first, last = min(known, default=None), max(known, default=0)
    if queue.spilled:  # the spill is only counted: its messages are somewhere from `spill_from` on
        first = queue.spill_from if first is None else min(first, queue.spill_from)
        last = lane.fed_to
    held = (sequence for sequence, held_subject in lane.held.items() if held_subject == subject)
    taken = _without_ended(lane, [*out, *held])
    if first is None and not taken:
        return QueuePosition(lane.fed_to + 1, None, lane.fed_to)
    return QueuePosition(min(taken if first is None else [*taken, first]), first, max(last, *taken, 0))


def iter_known(queue: Queue, lane: FedLane) -> Iterator[int]:
    """The sequences of a lane that wait in a queue, except those in the spill."""
    yield from (entry[1] for entry in queue.ready if entry[0] is lane)
    if queue.read is not None and queue.read.kind == lane.id.kind:
        yield from queue.read.sequences
    line = queue.find_line(lane.id.kind)
    if line is not None:
        yield from line
    if queue.order is not None:
        yield from (place.sequence for place in queue.order.waits_in(lane))


def _is_delivered(lane: FedLane, subject: bytes) -> bool:
    """Whether the feeds have delivered all messages of the subject that the lane had at its takeover."""
    return not lane.is_lacking(subject) if lane.is_catching_up else lane.position >= lane.high


def _without_ended(lane: FedLane, sequences: list[int]) -> list[int]:
    """The sequences without those that have ended, durably or not: a handler that hangs in a thread has its message
    even after it timed out, and a held message stays noted after it was settled.
    """
    if not sequences:
        return []
    ended, _ = lane.log.list_unsynced()
    return [sequence for sequence in sequences if sequence not in ended and sequence not in lane.settled]
