"""A queue's row of a record, and whether it is worth telling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.queue.queue_head import place_of_head, queue_head
from evenlane.engine.core.wire.meter_record import REFRESH, QueueRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue

_MS = 1_000_000  # ns
_TENTH = 100_000_000
_OLDEST = 10 * _MS


class PublishedRow(NamedTuple):
    """What the store has acknowledged of a queue: counters, gauges but for the age, and cumulative counts."""

    figures: tuple[int, ...]
    waited: Mapping[str, int]
    waits: Mapping[int, int]


class QueueReading(NamedTuple):
    """A queue as it was found. `oldest_at` is since when its head waits, unix ns, None if that isn't known; then
    `place` may say where it lies. `counters` as the columns have them.
    """

    queue: Queue
    counters: tuple[int, ...]
    backlog: int
    in_flight: int
    longest: int
    waited: Mapping[str, int]
    waits: Mapping[int, int]
    oldest_at: int | None
    place: tuple[LaneId, int] | None

    @property
    def told(self) -> PublishedRow:
        """What is known to the store once it has this."""
        return PublishedRow((*self.counters, self.backlog, self.in_flight), self.waited, self.waits)

    def untold(self) -> None:
        """The store didn't take it: the next record has to say how long the longest wait was."""
        self.queue.longest = max(self.queue.longest, self.longest * _MS)

    def row(self, lane: int, topic: int, oldest_at: int | None, now: int, before: PublishedRow | None) -> QueueRow:
        """`now` is unix ns by the store's clock; without `before` all buckets are named."""
        known = {} if before is None else before.waits
        changed = [(bucket, count) for bucket, count in sorted(self.waits.items()) if known.get(bucket) != count]
        age = 0 if oldest_at is None else max(0, now - oldest_at) // _OLDEST + 1
        queue = self.queue
        return QueueRow(
            lane, topic, queue.group, queue.band, self.counters, self.backlog, age, self.in_flight, self.longest,
            self.waited, changed,
        )  # fmt: skip


def read(queue: Queue, backlog: int, in_flight: int) -> QueueReading:
    """All of this is of one moment: what waits, runs and has ended adds up."""
    counters = (
        queue.arrived, queue.handled, queue.retried, queue.dead, queue.expired, queue.dropped, queue.attempts,
        queue.dwelt // _MS, queue.ran // _MS,
    )  # fmt: skip
    waited = {reason: int(ns) // _TENTH for reason, ns in queue.waited.items()} if queue.waited else {}
    at = queue_head(queue) if backlog else None
    place = place_of_head(queue) if backlog and at is None else None
    return QueueReading(
        queue, counters, backlog, in_flight, -(-queue.longest // _MS), waited, dict(queue.waits or {}), at, place
    )


def worth_telling(reading: QueueReading, told: PublishedRow | None) -> bool:
    """Whether it has changed since it was told."""
    if told is None:
        return any(reading.counters) or bool(reading.backlog or reading.in_flight)
    return reading.told != told


def is_due(number: int, turns: range) -> bool:
    """Whether a queue (or partition) of this number is to be told anew with all there is, as its turn is one of these
    records.
    """
    return (number - turns.start) % REFRESH < len(turns)
