"""A node's side of `max_backlog`: reports to producers, every second, how many messages wait in its partitions.

See docs/explanation/flow-control.md.

Topics without a limit cost nothing. All counts come from the node's memory, except for messages due in an hour that
isn't fed yet: the store is asked for those, a few projects and partitions per second in turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Disconnected, Lost, Refused
from evenlane.engine.core.records.backlog_report import (
    BacklogEntry,
    encode_report,
    partitions_of,
    request_subject,
    subject,
)
from evenlane.engine.core.request_bus import INBOX, SERVICE_INBOX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.core.ports import SubjectCounts
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.quota.topics.topic import Accepted

_log = structlog.get_logger(__name__)

EVERY_S = 1.0
_HOUR = 3_600_000_000_000  # ns
_SLICE = 200  # queues counted per turn of the loop
_ASKS = 64  # requests to the store per report
_MOST_ASKED = 1_000  # projects, and requests for each
_HELD_S = 1.0  # how long one report waits for the store


class BacklogReporter:
    """Publishes backlog reports. Call `open` once the node exists, and `close` before its store is closed."""

    def __init__(
        self, connection: RequestBus, cluster: str, node: Node, topic_cache: TopicCache, *, every_s: float = EVERY_S
    ) -> None:
        self._connection, self._node, self._topic_cache, self._every_s = connection, node, topic_cache, every_s
        self._subject, self._requests = subject(cluster, node.id), request_subject(cluster, "*")
        self._asked: dict[str, set[str]] = {}  # the reply subjects of producers that wait for a report, by project
        self._tally = PartitionTally(node)
        self._number = 0
        self._reporting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises Unreachable."""
        await self._connection.open()
        for project, accepted in self._topic_cache.all().items():
            self._tally.on_topic_change(project, accepted)
        self._topic_cache.on_change.append(self._tally.on_topic_change)
        self._connection.listen(self._requests, self._on_request)
        self._reporting = asyncio.create_task(self._keep_reporting(), name="backlog counts")

    async def close(self) -> None:
        """Harmless when it was never opened."""
        if self._tally.on_topic_change in self._topic_cache.on_change:
            self._topic_cache.on_change.remove(self._tally.on_topic_change)
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        await self._connection.close()

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._report()
            except Disconnected:
                continue  # producers count for themselves meanwhile
            except Exception:  # noqa: BLE001 - a defect here must not end the node
                _log.exception("the backlog could not be told")

    async def _report(self) -> None:
        at = self._node.store.now()
        entries = await self._tally.entries()
        for message in encode_report(self._node.id, self._number, at, entries):
            self._connection.send(self._subject, message)
            self._number += 1
        asked, self._asked = self._asked, {}
        for project, inboxes in asked.items():
            own = [entry for entry in entries if entry.project == project]
            for message in encode_report(self._node.id, self._number, at, own):
                for inbox in inboxes:
                    self._connection.send(inbox, message)

    def _on_request(self, asked: bytes, reply: bytes, _headers: bytes, _body: bytes) -> None:
        """Note a producer that may not read the reports about all projects: the next report answers it."""
        project, inbox = asked.rpartition(b".")[2].decode("utf-8", "replace"), reply.decode("utf-8", "replace")
        if not inbox.startswith((INBOX, SERVICE_INBOX)) or not inbox.isascii() or not inbox.isprintable():
            return
        if len(self._asked) < _MOST_ASKED and names.is_project(project):
            inboxes = self._asked.setdefault(project, set())
            if len(inboxes) < _MOST_ASKED:
                inboxes.add(inbox)


class PartitionTally:
    """Counts the waiting messages of each limited project in each of the node's partitions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._limited: dict[str, tuple[int, ...]] = {}  # project -> its partitions, on any node
        self._later: dict[tuple[str, int], SubjectCounts] = {}  # (project, partition) -> delayed messages, oldest first

    def on_topic_change(self, project: str, accepted: Accepted | None) -> None:
        if accepted is None or accepted.topic.max_backlog is None:
            self._limited.pop(project, None)
        else:
            config = self._node.cluster_config
            self._limited[project] = partitions_of(project, accepted, config.partitions, config.layout)

    async def entries(self) -> list[BacklogEntry]:
        if not self._limited:
            return []
        mine = self._complete()
        needed = {(project, n): None for project, of in self._limited.items() for n in of if n in mine}
        await self._ask_for_later(needed)
        running = Counter(
            (message.project, message.partition) for message in self._node.in_flight if message.project in self._limited
        )
        running.update(
            (q.project, q.partition) for q in self._node.eligibility.iter_retrying() if q.project in self._limited
        )
        found: list[BacklogEntry] = []
        by_project: dict[str, list[int]] = {}
        for project, number in needed:
            by_project.setdefault(project, []).append(number)
        for project, numbers in by_project.items():
            found += await self._of(project, numbers, mine, running)
        return found

    def _complete(self) -> dict[int, Partition]:
        """The partitions whose waiting messages are all known."""
        return {
            number: partition
            for number, partition in self._node.partitions.items()
            if partition.opened and not any(lane.is_catching_up for lane in partition.lanes)
        }

    async def _of(
        self, project: str, numbers: list[int], mine: dict[int, Partition], running: Counter[tuple[str, int]]
    ) -> list[BacklogEntry]:
        """The counts of a project. Positions are read first, so that a message that arrives during the count may be
        counted twice, but is never missed.
        """
        positions = {number: mine[number].lane.fed_to for number in numbers}
        counts = Counter({number: running[project, number] for number in numbers})
        async for queue in self._queues(project):
            if queue.partition in positions:
                counts[queue.partition] += queue.backlog + self._count_due_soon(queue, mine[queue.partition])
        hour = self._node.store.now() // _HOUR
        entries = []
        for number in numbers:
            later = self._later.get((project, number))
            far = 0 if later is None else _after(later.counts, hour)
            last = 0 if later is None else later.last
            entries.append(BacklogEntry(number, project, counts[number] + far, positions[number], last))
        return entries

    async def _queues(self, project: str) -> AsyncIterator[Queue]:
        for number, queue in enumerate(list(self._node.queues.of_project(project)), start=1):
            yield queue
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    def _count_due_soon(self, queue: Queue, partition: Partition) -> int:
        """Messages delayed to this hour or, if late, to the previous one. The store counts those of later hours."""
        node, hour = self._node, self._node.store.now() // _HOUR
        count, of = 0, (queue.project, queue.group, queue.priority)
        for lane in partition.delay_lanes:
            if lane.delayed.next_due() is None:
                continue
            for each in (hour - 1, hour):
                name = names.delay_subject(node.cluster, lane.id, *of, each)
                count += lane.delayed.count_delayed(name.encode())[0]
        return count

    async def _ask_for_later(self, needed: dict[tuple[str, int], None]) -> None:
        """Read counts of delayed messages: first those never read, then those read longest ago."""
        self._later = {key: found for key, found in self._later.items() if key in needed}
        asked = [*(key for key in needed if key not in self._later), *self._later][:_ASKS]
        try:
            async with asyncio.timeout(_HELD_S):
                for project, number in asked:
                    found = await self._node.store.count_by_subject(LaneId("later", number), project)
                    self._later.pop((project, number), None)
                    self._later[project, number] = found
        except (TimeoutError, Lost, Refused):
            return  # the next report goes on


def _after(counts: dict[str, int], hour: int) -> int:
    return sum(n for name, n in counts.items() if (names.number(name.rpartition(".")[2]) or 0) > hour)
