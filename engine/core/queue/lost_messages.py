"""What a lane's owner knew and is gone, as its stream was replaced or rolled back. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from evenlane.engine.core.ports import LaneState
    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue


def count_gone(lane: FedLane, state: LaneState, resting: Callable[[Queue], Iterable[MessageRef]]) -> Counter[Queue]:
    """How many messages of each queue waited and are surely gone. Of a new stream that is all; of one that was rolled
    back what lies above its end: it may have grown again since, so this is the least. `resting` gives those of a queue
    that wait for their next attempts, of any lane.

    Not counted is what a handler has (it ends, as void), and what had still to come in.
    """
    end = state.last if state.created == lane.created else 0

    def missing(sequences: Iterable[int]) -> int:
        return sum(sequence > end and sequence not in lane.dropped for sequence in sequences)

    gone: Counter[Queue] = Counter()
    for queue in lane.queues.values():
        if queue not in gone:  # (a later stream has a subject for each hour)
            gone[queue] = missing(_known(queue, lane)) + _spilled(queue, lane, end)
            gone[queue] += missing(place.sequence for place in resting(queue) if place.lane is lane)
    for subject, sequences in lane.delayed.sequences():
        gone[lane.queues[subject]] += missing(sequences)
    return +gone


def _known(queue: Queue, lane: FedLane) -> Iterator[int]:
    """The sequences of a lane that wait in a queue, but for the spill."""
    yield from (entry[1] for entry in queue.hand if entry[0] is lane)
    if queue.reading_due == lane.later:
        yield from queue.reading
    line = queue.due if lane.later else queue.waiting
    if line is not None:
        yield from line
    if queue.order is not None:
        yield from (place.sequence for place in queue.order.waits_in(lane))


def _spilled(queue: Queue, lane: FedLane, end: int) -> int:
    """Of the spill all but what may lie up to the end."""
    return 0 if lane.later else max(0, queue.spilled - max(0, end - queue.spill_from + 1))
