"""Publishes a node's records for reports to `METER_<cluster>`: one per interval, with all queues that changed.

See docs/reference/metering.md. A queue's figures count as published once the store has acknowledged them; the next
record repeats those of a lost one. A node whose store accepts no records continues its work, and publishes all figures
later.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.background_work import low_priority
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.records.meter_record import Block, LaneRow, RecordHead, encode
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.queues.activity import is_silent
from evenlane.engine.telemetry.metering.queue_row import has_changed, is_due, read
from evenlane.engine.telemetry.metering.record_tables import QueueToPublish, share_out, tables
from evenlane.engine.telemetry.metering.rotation import Rotation
from evenlane.engine.telemetry.metering.silent_rows import SilentRows
from evenlane.engine.telemetry.metering.topic_rows import TopicRows
from evenlane.engine.telemetry.tenants.sampler import HeadTimes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.meter_record import TopicRow
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.engine.telemetry.metering.queue_row import PublishedRow
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_SLICE = 100  # queues per turn of the loop: about a millisecond
_EVERY_S = 0.01  # pause between two such turns
_MOST = 20_000  # queues per record, far below the server's limit
_ROUNDS_OF_AGES = 8
_ACK_S = 5.0
_LAST_S = 2.0  # for the last record of a session


class MeterPublisher:
    """Publishes records for one session: call `open` when the node exists, `close` before its store is closed. An
    `interval_s` of 0 disables records. `slots` is the number of handlers that may run; `tenants` knows the fairness
    ratios.

    Invariants: `_published` has the acknowledged figures of each queue, in its rotation. A queue in `_left` belongs to
    a partition that was handed off, and stays until a record without messages in flight is acknowledged. `_number` is
    the number of the last record made, `_after` that of the last acknowledged one.
    """

    def __init__(
        self, node: Node, tenants: TenantRegistry, interval_s: float, slots: int, *, most_rows: int = _MOST
    ) -> None:
        self._node, self._tenants, self._interval, self._slots = node, tenants, interval_s, slots
        self._most = most_rows
        self._subject = names.meter_subject(node.cluster, node.id)
        self._head_times = HeadTimes(node)
        self._published: Rotation[Queue, PublishedRow] = Rotation()
        self._topics = TopicRows(node)
        self._silent = SilentRows(node, self._complete_lane, self._topics.row_of)
        self._left: dict[Queue, tuple[LaneRow, int]] = {}  # queues of partitions handed off, and their backlog then
        self._run = self._number = self._after = 0
        self._refreshed = 0  # queues whose turn is a record up to this one have been refreshed
        self._since = 0  # monotonic ns: end of the last record's interval
        self._lanes: dict[int, LaneRow] = {}
        self._published_lanes: dict[int, int] = {}  # partition -> epoch that the store knows
        self._refused = ""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        if not self._interval:
            return
        self._run, self._since = self._node.store.now(), now_ns()
        self._node.queues.on_gone.append(self._on_queues_gone)
        self._watch = self._node.queues.activity.watch(self._node.queues.all())
        self._task = asyncio.create_task(self._go_on(), name="metering")

    async def close(self) -> None:
        """Publish figures that are new since the last record. No effect if never opened."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        self._on_queues_gone(self._node.queues.all())
        try:
            async with asyncio.timeout(_LAST_S):
                await self.publish(last=True)
        except (TimeoutError, Lost, Refused) as error:
            _log.warning("the last interval is missing in reports", error=str(error) or "no answer in time")
        self._watch.close()

    async def _go_on(self) -> None:
        await asyncio.sleep(random.uniform(0, self._interval))  # noqa: S311 - spreads nodes that start together
        while True:
            began = now_ns()
            try:
                await self.publish()
                self._refused = ""
            except (TimeoutError, Lost, Refused) as error:
                await self._on_failure(str(error) or "no answer in time")
            except Exception:  # noqa: BLE001 - a defect here must not end the node
                _log.exception("the record for reports could not be made")
            took = (now_ns() - began) / _SECOND
            await asyncio.sleep(max(self._interval / 10, self._interval - took))

    async def _on_failure(self, error: str) -> None:
        """Log an error once, and recreate the stream, which may have been deleted."""
        if self._refused != error:
            self._refused = error
            _log.warning("a record for reports could not be stored: the next one says it all", error=error)
        try:
            await self._node.store.prepare([])
        except (Lost, Refused, ConfigError) as again:
            _log.debug("streams not checked", error=str(again))

    # ---- one record

    async def publish(self, *, last: bool = False) -> None:
        """Publish new figures, in several records if there are many. Raises Lost, Refused, TimeoutError."""
        node = self._node
        turns = range(self._refreshed + 1, self._number + 2)
        found = await self._read(turns, last=last)
        blocks = [] if last else await self._silent.blocks(self._published.due(turns), self._most)
        fairness = await asyncio.to_thread(self._tenants.usage.sample().ratios)
        seen = {each.lane for each in found}.union(*(block.lanes for block in blocks))
        bare = [] if last else self._bare(turns, seen)
        came = {} if last else await self._read_head_times(found)
        topics = await self._topics.rows(found, fairness)
        at, now = node.store.now(), now_ns()
        span, self._since = now - self._since, now
        begun = self._number + 1
        for start, end, block in share_out(len(found), blocks, self._most):
            part = found[start:end]
            self._number += 1
            head = RecordHead(
                node.id, self._run, self._number, self._after, at, span, self._slots, node.cluster_config.priorities
            )
            body = await asyncio.to_thread(_record, head, part, came, topics, bare, block.with_fairness(fairness))
            try:
                async with asyncio.timeout(_ACK_S):
                    await node.store.put(self._subject, b"", body)
            except BaseException:
                for each in found[start:]:
                    each.reading.restore_longest()
                raise
            self._on_ack(part, bare, block)
            bare = []
        self._refreshed = begun

    def _on_ack(self, part: Sequence[QueueToPublish], bare: Iterable[LaneRow], block: Block) -> None:
        self._after = self._number
        lanes = (*bare, *block.lanes, *(each.lane for each in part))
        self._published_lanes |= {lane.partition: lane.epoch for lane in lanes}
        for lane, reading, _ in part:
            queue = reading.queue
            if lane.closed and not reading.in_flight:  # `closed` is false if the queue was handed off after the read
                self._published.discard(queue)
                del self._left[queue]
            elif lane.closed or queue in self._watch.queues:  # the store knows the others already
                self._published.put(queue, reading.published)

    # ---- content

    async def _read(self, turns: range, *, last: bool) -> list[QueueToPublish]:
        """Read the queues to publish, those of handed-off partitions first."""
        running = self._count_running()
        found = [self._read_left(queue, running[queue], last=last) for queue in self._left]
        due = self._list_due(turns)
        for count, queue in enumerate([*due, *(each for each in self._watch.queues if each not in due)], start=1):
            partition = self._node.partitions.get(queue.partition)
            if queue not in self._left and partition is not None and _is_complete(partition):
                found += self._read_one(queue, partition, running, is_due=queue in due)
            if count % _SLICE == 0:
                await asyncio.sleep(_EVERY_S)
                running = self._count_running()
        return [each for each in found if any(each.reading.counters) or each.reading.backlog]

    def _list_due(self, turns: range) -> set[Queue]:
        """Return the queues whose turn it is, except silent ones, which have rows of their own."""
        due: set[Queue] = set()
        for part in self._published.due(turns):
            for queue in part.silent.keys() & self._watch.queues.keys():
                part.wake(queue)
            for queue in [each for each in part.awake if each not in self._watch.queues and each not in self._left]:
                part.mark_silent(queue)
            due.update(part.awake)
        return due

    def _read_one(
        self, queue: Queue, partition: Partition, running: Counter[Queue], *, is_due: bool
    ) -> Iterator[QueueToPublish]:
        """Read a queue if it has changed, or its turn has come. A silent queue is no longer watched."""
        published = self._published.get(queue)
        reading = read(queue, queue.backlog, running[queue])
        if is_due or has_changed(reading, published):
            queue.stats.longest = 0
            yield QueueToPublish(self._lane(partition), reading, None if is_due else published)
        elif is_silent(queue, running):
            self._watch.release(queue)

    def _bare(self, turns: range, published: Collection[LaneRow]) -> list[LaneRow]:
        """Return the rows of partitions that this node owns and that have no queue to publish. These rows end the
        backlog that a crashed previous owner has published.
        """
        owned = (each for each in self._node.partitions.values() if _is_complete(each))
        lanes = (
            self._lane(each)
            for each in owned
            if is_due(each.number, turns) or self._published_lanes.get(each.number) != each.lane.epoch
        )
        return [lane for lane in lanes if lane not in published]

    def _read_left(self, queue: Queue, running: int, *, last: bool) -> QueueToPublish:
        """Read a queue of a handed-off partition. Messages still running when the node ends wait for the next owner."""
        lane, backlog = self._left[queue]
        reading = read(queue, backlog + running, 0) if last else read(queue, backlog, running)
        return QueueToPublish(lane, reading, self._published.get(queue))

    def _count_running(self) -> Counter[Queue]:
        """Count messages in flight by queue, after adding all completed ones to the queues' counters."""
        self._node.times.add_up()
        return Counter(message.queue for message in self._node.in_flight)

    def _on_queues_gone(self, queues: Iterable[Queue]) -> None:
        """Note queues that are about to become another node's: their present figures are final."""
        for queue in queues:
            partition = self._node.partitions.get(queue.partition)
            if partition is not None and queue not in self._left:
                self._published.part(queue).wake(queue)
                self._left[queue] = self._lane(partition)._replace(closed=True), queue.backlog

    def _complete_lane(self, number: int) -> LaneRow | None:
        """Return a partition's row; None if this node can't report on it."""
        partition = self._node.partitions.get(number)
        return self._lane(partition) if partition is not None and _is_complete(partition) else None

    def _lane(self, partition: Partition) -> LaneRow:
        """Return a partition's row, which is constant within an epoch."""
        number, epoch = partition.number, partition.lane.epoch
        known = self._lanes.get(number)
        if known is None or known.epoch != epoch:
            since = self._node.store.now() - (now_ns() - partition.made_at)
            known = self._lanes[number] = LaneRow(number, epoch, since, closed=False)
        return known

    async def _read_head_times(self, found: Sequence[QueueToPublish]) -> dict[tuple[LaneId, int], int | None]:
        """Read since when heads that aren't loaded have waited, as many as the store returns in some rounds."""
        places = {each.reading.place for each in found if each.reading.place is not None}
        came: dict[tuple[LaneId, int], int | None] = {}
        for _ in range(_ROUNDS_OF_AGES):
            before = len(came)
            came = await self._head_times.read(places)
            if len(came) in (before, len(places)):
                break
        return came


def _is_complete(partition: Partition) -> bool:
    """Whether the partition's backlog is known. Before that, its previous owner's figures are the latest."""
    return partition.opened and not partition.lane.is_catching_up


def _record(
    head: RecordHead,
    found: Sequence[QueueToPublish],
    came: Mapping[tuple[LaneId, int], int | None],
    topics: Mapping[str, TopicRow],
    bare: Sequence[LaneRow],
    block: Block,
) -> bytes:
    with low_priority():
        return encode(head, *tables(found, came, topics, head.at, bare, block), block)
