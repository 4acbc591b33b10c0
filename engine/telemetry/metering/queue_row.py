"""Builds a queue's row of a record, and decides whether to publish it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.queue.queue_head import head_waits_since, place_of_head
from evenlane.engine.core.records.meter_record import REFRESH, QueueRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue

_MS = 1_000_000  # ns
_TENTH = 100_000_000
_OLDEST = 10 * _MS


class PublishedRow(NamedTuple):
    """Figures of a queue that the store has acknowledged: counters, gauges except the age, and cumulative counts."""

    figures: tuple[int, ...]
    waited: Mapping[str, int]
    waits: Mapping[int, int]


class QueueReading(NamedTuple):
    """Figures of a queue at one moment. `oldest_at` is when its head began to wait, in unix ns, None if unknown;
    `place` may then say where the head is. `counters` are in the order of the columns.
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
    def published(self) -> PublishedRow:
        """Figures that the store knows once it has acknowledged this reading."""
        return PublishedRow((*self.counters, self.backlog, self.in_flight), self.waited, self.waits)

    def restore_longest(self) -> None:
        """Return the longest wait to the queue, for the next record, as the store didn't accept this one."""
        stats = self.queue.stats
        stats.longest = max(stats.longest, self.longest * _MS)

    def row(self, lane: int, topic: int, oldest_at: int | None, now: int, before: PublishedRow | None) -> QueueRow:
        """Build the row. `now` is unix ns by the store's clock; without `before`, all buckets are included."""
        known = {} if before is None else before.waits
        changed = [(bucket, count) for bucket, count in sorted(self.waits.items()) if known.get(bucket) != count]
        age = 0 if oldest_at is None else max(0, now - oldest_at) // _OLDEST + 1
        queue = self.queue
        return QueueRow(
            lane, topic, queue.group, queue.band, self.counters, self.backlog, age, self.in_flight, self.longest,
            self.waited, changed,
        )  # fmt: skip


def read(queue: Queue, backlog: int, in_flight: int) -> QueueReading:
    """Read all figures at one moment, so that they are consistent with each other."""
    stats = queue.stats
    counters = (*stats.flow, stats.attempts, stats.dwelt // _MS, stats.ran // _MS)
    waited = {reason: int(ns) // _TENTH for reason, ns in stats.waited.items()} if stats.waited else {}
    at = head_waits_since(queue) if backlog else None
    place = place_of_head(queue) if backlog and at is None else None
    return QueueReading(
        queue, counters, backlog, in_flight, -(-stats.longest // _MS), waited, dict(stats.waits or {}), at, place
    )


def has_changed(reading: QueueReading, published: PublishedRow | None) -> bool:
    """Whether the queue has changed since it was published."""
    if published is None:
        return any(reading.counters) or bool(reading.backlog or reading.in_flight)
    return reading.published != published


def is_due(number: int, turns: range) -> bool:
    """Whether a queue (or partition) with this number is published in full in one of the records numbered `turns`."""
    return (number - turns.start) % REFRESH < len(turns)
