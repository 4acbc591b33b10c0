"""Rows of topics: their settings, the part of the quota that the node may use, and their fairness."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.core.records.meter_record import TopicRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.metering.record_tables import QueueToPublish
    from evenlane.quota.topics.topic import Topic

_SLICE = 100  # queues per turn of the loop: about a millisecond


class TopicRows:
    def __init__(self, node: Node) -> None:
        self._queues = node.queues

    async def rows(self, found: Sequence[QueueToPublish], fairness: Mapping[str, float]) -> dict[str, TopicRow]:
        """Return the rows of these queues' projects."""
        rows: dict[str, TopicRow] = {}
        for count, each in enumerate(found, start=1):
            queue = each.reading.queue
            if queue.project not in rows:
                rows[queue.project] = self._row(queue.project, queue.rules.topic, fairness.get(queue.project))
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        return rows

    def row_of(self, project: str) -> TopicRow:
        """Return a project's row, without its fairness."""
        queues = self._queues.of_project(project)
        return self._row(project, queues[0].rules.topic if queues else None, None)

    def _row(self, project: str, topic: Topic | None, fairness: float | None) -> TopicRow:
        if topic is None:
            return TopicRow(project, fairness=fairness)
        may_use = topic.qps * self._queues.shares.part(project)
        return TopicRow(project, topic.qps, may_use, topic.weight, topic.reserve, topic.concurrency, fairness)
