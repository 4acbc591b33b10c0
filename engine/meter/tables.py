"""A record's tables from what was read of queues: lanes and topics once each, queues sorted so that alike ones are
neighbours. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.meter.reading import Reading, Told
    from engine.names import LaneId
    from engine.schemas.meter import LaneRow, QueueRow, TopicRow


class Of(NamedTuple):
    """A queue that is to be told: its lane, what was read of it, and what the store knows, None if it is to be told
    all.
    """

    lane: LaneRow
    reading: Reading
    before: Told | None


class Tables(NamedTuple):
    """See engine/schemas/meter.py."""

    lanes: list[LaneRow]
    topics: list[TopicRow]
    queues: list[QueueRow]


def tables(
    found: Sequence[Of],
    came: Mapping[tuple[LaneId, int], int | None],
    topic_of: Mapping[str, TopicRow],
    now: int,
    bare: Sequence[LaneRow] = (),
) -> Tables:
    """`came` tells since when heads wait that aren't at hand, unix ns, by place; `now` by the same clock. `topic_of`
    has a row for each project. `bare` are lanes of which there is no queue to tell.
    """
    lanes: dict[LaneRow, int] = {}
    topics: dict[str, int] = {}
    rows: list[QueueRow] = []
    for lane, reading, before in sorted(found, key=_alike):
        project = reading.queue.project
        at = reading.oldest_at
        if at is None and reading.place is not None:
            at = came.get(reading.place)
        rows.append(
            reading.row(lanes.setdefault(lane, len(lanes)), topics.setdefault(project, len(topics)), at, now, before)
        )
    return Tables([*lanes, *bare], [topic_of[project] for project in topics], rows)


def _alike(each: Of) -> tuple[str, int, int, int]:
    queue = each.reading.queue
    return queue.project, queue.group, queue.band, each.lane.epoch
