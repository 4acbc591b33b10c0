"""Builds a record's tables from queue readings: lanes and topics once each, queues sorted so that similar ones are
neighbours. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.meter_record import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.records.meter_record import LaneRow, QueueRow, TopicRow
    from evenlane.engine.telemetry.metering.queue_row import PublishedRow, QueueReading


class QueueToPublish(NamedTuple):
    """A queue to publish: its lane, its reading, and the figures that the store knows; None to publish it in full."""

    lane: LaneRow
    reading: QueueReading
    before: PublishedRow | None


class RecordTables(NamedTuple):
    """Arguments of `encode` in engine/core/records/meter_record.py."""

    lanes: list[LaneRow]
    topics: list[TopicRow]
    queues: list[QueueRow]


def tables(
    found: Sequence[QueueToPublish],
    came: Mapping[tuple[LaneId, int], int | None],
    topic_of: Mapping[str, TopicRow],
    now: int,
    bare: Sequence[LaneRow] = (),
    ready: Block = Block(),  # noqa: B008 - immutable
) -> RecordTables:
    """Build the tables. `came` is since when heads that aren't loaded have waited, in unix ns, by place; `now` is by
    the same clock. `topic_of` has a row for each project. `bare` are lanes without a queue to publish. `ready` are rows
    that precede these: its lanes are included in the table of lanes, its topics aren't in that of topics.
    """
    lanes = {lane: place for place, lane in enumerate(ready.lanes)}
    topics = {project: place for place, project in enumerate(ready.projects)} if found else {}
    rows: list[QueueRow] = []
    for lane, reading, before in sorted(found, key=_sort_key):
        project = reading.queue.project
        at = reading.oldest_at
        if at is None and reading.place is not None:
            at = came.get(reading.place)
        rows.append(
            reading.row(lanes.setdefault(lane, len(lanes)), topics.setdefault(project, len(topics)), at, now, before)
        )
    more = list(topics)[len(ready.projects) :]
    return RecordTables([*lanes, *bare], [topic_of[project] for project in more], rows)


def _sort_key(each: QueueToPublish) -> tuple[str, int, int, int]:
    queue = each.reading.queue
    return queue.project, queue.group, queue.band, each.lane.epoch


def share_out(found: int, blocks: Iterable[Block], most: int) -> Iterator[tuple[int, int, Block]]:
    """Distribute queues over records. Yields, for each record, the range of `found` in it, and the block it begins
    with.

    A record has at most `most` queues; there is at least one record. No block may have more than `most`.
    """
    start, left = 0, list(blocks)
    while True:
        block = left.pop(0) if left else Block()
        end = min(found, start + most - block.queues)
        yield start, end, block
        start = end
        if start == found and not left:
            return
