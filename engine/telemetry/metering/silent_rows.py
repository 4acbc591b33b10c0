"""Rows of silent queues, packed once and republished in each of their turns (docs/adr/0025).

The known values of a silent queue don't change, so its part of a record is kept as bytes. Only values outside of the
queue can change: the owner of its partition, and what its topic may use. Both are compared before each use.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from evenlane.engine.base.background_work import low_priority
from evenlane.engine.core.records.meter_record import Block, QueueRow, pack_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.meter_record import LaneRow, TopicRow
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.metering.queue_row import PublishedRow
    from evenlane.engine.telemetry.metering.rotation import RotationSlot

_SLICE = 100  # topics per turn of the loop: less than a millisecond


class SilentRows:
    """Packs rows of silent queues. `lane_of` returns a partition's row, None while this node can't report on it;
    `topic_of` returns a project's.
    """

    def __init__(
        self, node: Node, lane_of: Callable[[int], LaneRow | None], topic_of: Callable[[str], TopicRow]
    ) -> None:
        self._shares, self._lane_of, self._topic_of = node.queues.shares, lane_of, topic_of

    async def blocks(self, parts: Sequence[RotationSlot[Queue, PublishedRow]], most: int) -> list[Block]:
        """Return blocks with the rows of these parts' silent queues, at most `most` per block; all but the first are
        full.
        """
        if len(parts) == 1 and len(parts[0].silent) <= most:
            found = [await self._of_part(parts[0])]
        else:
            silent = [item for part in parts for item in part.silent.items()]
            found = [await self._pack(dict(silent[max(0, end - most) : end])) for end in range(len(silent), 0, -most)]
        return [block for block in reversed(found) if block.queues]

    async def _of_part(self, part: RotationSlot[Queue, PublishedRow]) -> Block:
        """Return the part's block, updated if something has changed."""
        revision, previous = self._shares.revision, part.block
        if previous is not None and all(self._lane_of(lane.partition) == lane for lane in previous.lanes):
            if part.revision == revision:
                return previous
            block = previous.with_topics(await self._topics(previous.projects))
            is_current = part.block is previous
        else:
            silent = dict(part.silent)
            block = await self._pack(silent)
            is_current = block.queues == len(silent) and silent.keys() == part.silent.keys()
        if is_current:
            part.block, part.revision = block, revision
        return block

    async def _pack(self, silent: Mapping[Queue, PublishedRow]) -> Block:
        lanes = {number: self._lane_of(number) for number in {queue.partition for queue in silent}}
        topics = await self._topics(sorted({queue.project for queue in silent if lanes[queue.partition] is not None}))
        return await asyncio.to_thread(_pack, silent, lanes, topics)

    async def _topics(self, projects: Iterable[str]) -> list[TopicRow]:
        rows: list[TopicRow] = []
        names = iter(projects)
        while some := list(islice(names, _SLICE)):
            rows += map(self._topic_of, some)
            await asyncio.sleep(0)
        return rows


def _pack(
    silent: Mapping[Queue, PublishedRow], lanes: Mapping[int, LaneRow | None], topics: Sequence[TopicRow]
) -> Block:
    """Pack the queues of partitions that have a row, sorted so that similar ones are neighbours."""
    with low_priority():
        named = [lane for lane in lanes.values() if lane is not None]
        lane_at = {lane.partition: place for place, lane in enumerate(named)}
        topic_at = {topic.project: place for place, topic in enumerate(topics)}
        queues = sorted((queue for queue in silent if queue.partition in lane_at), key=_sort_key)
        rows = [_row(queue, lane_at[queue.partition], topic_at[queue.project], silent[queue]) for queue in queues]
        return pack_block(named, topics, rows)


def _row(queue: Queue, lane: int, topic: int, published: PublishedRow) -> QueueRow:
    """Build the row of a silent queue: no backlog, nothing in flight, and all of its buckets included."""
    counters, waits = published.figures[:-2], sorted(published.waits.items())
    return QueueRow(lane, topic, queue.group, queue.band, counters, 0, 0, 0, 0, published.waited, waits)


def _sort_key(queue: Queue) -> tuple[str, int, int]:
    return queue.project, queue.group, queue.band
