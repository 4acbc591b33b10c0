"""Counts the messages that were lost because their stream was replaced or rolled back. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.positions import iter_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.core.ports import LaneState
    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue


def count_gone(lane: FedLane, state: LaneState, resting: Callable[[Queue], Iterable[MessageRef]]) -> Counter[Queue]:
    """Count, per queue, the waiting messages that are certainly lost.

    If the stream was replaced, all of them are lost. If it was rolled back, those above its end are: it may have grown
    again since, so this is a lower bound. `resting` returns a queue's messages that wait for their next attempt, in any
    lane.

    Messages that a handler is processing aren't counted (their results will be stale), nor are those that were still to
    be delivered.
    """
    end = state.last if state.created == lane.created else 0

    def count_missing(sequences: Iterable[int]) -> int:
        return sum(sequence > end and sequence not in lane.dropped for sequence in sequences)

    gone: Counter[Queue] = Counter()
    for queue in lane.queues.values():
        if queue not in gone:  # (a delay stream has one subject per hour for the same queue)
            gone[queue] = count_missing(iter_known(queue, lane)) + _count_spilled(queue, lane, end)
            gone[queue] += count_missing(place.sequence for place in resting(queue) if place.lane is lane)
    for subject, sequences in lane.delayed.sequences():
        gone[lane.queues[subject]] += count_missing(sequences)
    return +gone


def _count_spilled(queue: Queue, lane: FedLane, end: int) -> int:
    """The size of the spill less the messages that may lie up to the stream's end."""
    return 0 if lane.later else max(0, queue.spilled - max(0, end - queue.spill_from + 1))
