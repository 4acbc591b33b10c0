"""Node's side of `evenlane why`: answers on `ask.<cluster>.why.<project>` (docs/reference/messages.md).

An answer must not disturb the node. It looks only at the project's own queues, in slices with a turn of the event loop
between them; it uses only existing counters; and it has a connection of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.admin.backlog.drop_responder import DropResponder
from evenlane.engine.admin.why.queue_progress import ProgressInspector
from evenlane.engine.admin.why.rate_sampler import RateSampler, queues_of
from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.plural import format_count
from evenlane.engine.core.ports import Disconnected, Lost, Refused
from evenlane.engine.core.queue.queue_head import head_waits_since, place_of_head, waits_since
from evenlane.engine.core.records.backlog_answer import NodeAnswer
from evenlane.engine.core.records.why_request import WhyRequest, decode, subject
from evenlane.engine.core.request_bus import INBOX
from evenlane.engine.core.stats.backlog_tally import QueueView, Tally
from evenlane.engine.errors import InvalidName
from evenlane.engine.telemetry import wait_reasons

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.backlog_answer import Rates
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)

MEASURE_S = 1.0  # between the two samples of a rate, if there is no recent one
_SECOND = 1_000_000_000
_AT_ONCE = 32  # concurrent answers; further requests get none
_READ_S = 0.5  # for reading the age of heads that aren't loaded


class WhyResponder:
    """Serves explanations on a node: call `open` when the node exists, and `close` before its store is closed. A node
    without partitions doesn't answer. `lost` as in `QueueInspector`.
    """

    def __init__(
        self,
        connection: RequestBus,
        cluster: str,
        node: Node,
        tenants: TenantRegistry | None = None,
        *,
        lost: Callable[[str], Topic | None] = lambda _project: None,
        measure_s: float = MEASURE_S,
    ) -> None:
        self._connection, self._cluster = connection, cluster
        self._inspector, self._progress = QueueInspector(node, measure_s, tenants, lost), ProgressInspector(node)
        self._drops = DropResponder(connection, cluster, node)
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the connection and listen. Raises Unreachable."""
        await self._connection.open()
        self._connection.listen(subject(self._cluster, "*"), self._on_request)
        self._drops.listen()

    async def close(self) -> None:
        await self._drops.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    def _on_request(self, asked: bytes, reply: bytes, _headers: bytes, body: bytes) -> None:
        if not reply.startswith(INBOX.encode()) or not self._node.partitions or len(self._tasks) >= _AT_ONCE:
            return
        try:
            project = names.check_project(asked.rpartition(b".")[2].decode("utf-8", "replace"))
        except InvalidName:
            return
        task = asyncio.create_task(self._answer(project, reply.decode("utf-8", "replace"), decode(body)), name="why")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, project: str, reply: str, request: WhyRequest) -> None:
        try:
            answer = await self._inspector.inspect(project)
            if request.positions:
                answer.progress, answer.left_out = await self._progress.inspect(project, request.priority)
            self._connection.send(reply, msgspec.json.encode(answer))
        except Disconnected:
            _log.debug("whoever asked is out of reach", project=project)
        except Exception:  # noqa: BLE001 - a defect here must not end the node
            _log.exception("a question could not be answered", project=project)


class QueueInspector:
    """Inspects a project on a node. `lost(project)` returns its topic if etcd has lost it and the node keeps it."""

    def __init__(
        self,
        node: Node,
        measure_s: float = MEASURE_S,
        tenants: TenantRegistry | None = None,
        lost: Callable[[str], Topic | None] = lambda _project: None,
    ) -> None:
        self._node, self._tenants, self._lost = node, tenants, lost
        self._sampler = RateSampler(node, measure_s)

    async def inspect(self, project: str) -> NodeAnswer:
        rates, long_rates = await self._rates(project)
        node = self._node
        tally = Tally(node.store.now())
        unread: dict[LaneId, dict[int, str]] = {}
        reading = 0
        async for queue in queues_of(node, project):
            at = head_waits_since(queue)
            tally.add(self._view(queue, at))
            if at is None and queue.backlog:
                reading += not queue.rules.asleep
                _note_head(queue, unread)
        for message in node.in_flight:
            if message.project == project:
                tally.add_running(message.priority)
        for priority, at in await self._ages(unread):
            tally.add_waiting(priority, at)
        tally.drop_momentary()
        over_s = self._lately(project, tally)
        queues = len(node.queues.of_project(project))
        served = [number for number in node.partitions if node.lanes.is_served(number)]
        return NodeAnswer(
            node.id, queues, tally.parts, tally.deepest, rates, self._notes(project, reading), over_s,
            self._compute_allowance(project), served, self._lost(project), node.last_errors.text_of(project),
            self._failing_s(project), long_rates,
            grows=self._tenants is not None and self._tenants.paces.grows(project),
        )  # fmt: skip

    def _failing_s(self, project: str) -> float | None:
        since = None if self._tenants is None else self._tenants.failing_since.get(project)
        return None if since is None else (now_ns() - since) / _SECOND

    def _view(self, queue: Queue, at: int | None) -> QueueView:
        delayed, next_due = wait_reasons.count_not_due(self._node, queue)
        reason = self._node.wait_rules.reason(queue) if queue.backlog else None
        return QueueView(queue.priority, queue.group, queue.backlog, delayed, next_due, at, reason)

    def _lately(self, project: str, tally: Tally) -> float:
        """Add the wait reasons of heads in the last minute; return the number of seconds covered."""
        if self._tenants is None:
            return 0.0
        waited, over_s = self._tenants.waits.lately(project, now_ns())
        for (band, reason), seconds in waited.items():
            tally.add_wait(self._node.cluster_config.priorities[band], reason, seconds)
        return over_s

    # ---- age of heads that aren't loaded

    async def _ages(self, unread: dict[LaneId, dict[int, str]]) -> list[tuple[str, int]]:
        """Return (priority, time of arrival) of these messages, as far as the store answers soon."""
        try:
            async with asyncio.timeout(_READ_S):
                found = await asyncio.gather(*(self._read(lane, heads) for lane, heads in unread.items()))
        except (TimeoutError, Lost, Refused):
            return []
        return [age for ages in found for age in ages]

    async def _read(self, lane: LaneId, heads: dict[int, str]) -> list[tuple[str, int]]:
        stored = await self._node.store.get(lane, list(heads))
        return [
            (priority, waits_since(message))
            for priority, message in zip(heads.values(), stored, strict=True)
            if message is not None
        ]

    async def _rates(self, project: str) -> tuple[Rates, Rates | None]:
        """Return the rates that the metrics show, and those over a longer time if they are known. Those of a project
        without a label of its own are measured now.
        """
        if self._tenants is not None and (rates := self._tenants.rates_of(project)) is not None:
            return rates, self._tenants.paces.measure_long(project)
        return await self._sampler.measure(project)

    # ---- reasons that hold up the whole node

    def _compute_allowance(self, project: str) -> float | None:
        """Return the rate that the node may use now, in messages per second: its own part of the quota, minus what it
        has lent, plus what it has borrowed. None if the project has no rules, or its groups may not borrow.
        """
        parts = self._node.queues.shares.parts_of(project)
        return None if parts is None else parts[0].qps * parts[2]

    def _notes(self, project: str, reading: int) -> list[str]:
        """Return notes that no queue's reason covers. `reading` queues have a backlog but no loaded message."""
        return [*self._settle_notes(project), *self._backlog_notes(project, reading)]

    def _settle_notes(self, project: str) -> list[str]:
        """Return reasons why the whole node starts nothing, or a failed message isn't retried."""
        node, now, notes = self._node, now_ns(), []
        stuck, why = node.failures.count_stuck(project)
        if stuck:
            notes.append(f"{stuck} of its failed messages stay: their retries or dead letters can't be stored ({why})")
        if now >= node.settler.late_at:
            notes.append("nothing new is started: results aren't durable yet, as the settle log lags")
        if node.failures.crowded:
            notes.append("nothing new is started: too many retries and dead letters wait to be stored")
        if now >= node.trusted_until:
            notes.append("nothing new is started: its lease in etcd isn't renewed")
        if not node.store.is_connected:
            notes.append("it has no connection to its store")
        return notes

    def _backlog_notes(self, project: str, reading: int) -> list[str]:
        """Return reasons why more may wait than the node knows, or than it has loaded."""
        node, notes = self._node, []
        if (paused := node.pauses.reason(project)) is not None:
            notes.append(paused)
        numbers = {queue.partition for queue in node.queues.of_project(project)}
        opening = sum(not partition.opened for partition in node.partitions.values())
        if opening:
            notes.append(f"it is still taking over {format_count(opening, 'partition')}: more may wait there")
        mine = [partition for number, partition in node.partitions.items() if number in numbers]
        if catching_up := sum(partition.lane.is_catching_up for partition in mine):
            partitions = format_count(catching_up, "partition")
            notes.append(f"it is still reading the backlog of {partitions}: more messages wait than reported")
        if reading and node.ready.memory.starved:
            notes.append(f"the heads of {format_count(reading, 'queue')} wait to be read: no room for more payloads")
        elif reading:
            notes.append(f"the heads of {format_count(reading, 'queue')} are being read from the store")
        return notes


def _note_head(queue: Queue, unread: dict[LaneId, dict[int, str]]) -> None:
    """Note the head of a queue without loaded messages, unless an older one of its priority and stream is noted
    already: in one stream, the lower sequence is the older message.
    """
    place = place_of_head(queue)
    if place is None:
        return
    lane, sequence = place
    heads = unread.setdefault(lane, {})
    known = next((each for each, priority in heads.items() if priority == queue.priority), None)
    if known is None or sequence < known:
        if known is not None:
            del heads[known]
        heads[sequence] = queue.priority
