"""Drops messages on a node: those that wait in its partitions are settled as dropped, through its settle log.

Messages that are ready, known to a queue or delayed are dropped at once. Messages that the node knows only by number
(the spill, later hours) are found by subject in the store, page by page. Messages being handled are completed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.admin.backlog.drop_client import DropProgress
from evenlane.engine.admin.backlog.scan import PAGE
from evenlane.engine.base import names
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.wire.queue_subjects import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from evenlane.engine.admin.backlog.drop_client import DropRequest, DropTarget
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.wire.queue_subjects import Subject
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.partition import Partition

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.2
_POLL_S = 0.02
_MOST_UNSYNCED = 20_000  # a settle record must fit into a message, however scattered its sequences are


class LaneChanged(Exception):
    """This node no longer owns the lane, or its stream was replaced."""


class DropTask:
    """Carries out one request to drop. `word` is its progress.

    Invariants: `_generations`, `_dropped` and `_latest` are keyed by lane. A lane's generation was read before the
    first drop; a change ends the work on it. `_dropped` has all sequences dropped by this task, `_latest` the last
    batch.
    """

    def __init__(self, node: Node, project: str, ask: DropRequest) -> None:
        self._node, self._project, self._ask = node, project, ask
        self._generations: dict[Lane, int] = {}
        self._dropped: dict[Lane, SettledSet] = {}
        self._latest: dict[Lane, list[int]] = {}
        self.word = DropProgress(node.id)

    async def run(self) -> None:
        """Return once all is durably settled. Errors are reported in `word`."""
        try:
            if self._ask.targets is not None:
                await self._cancel(self._ask.targets)
            else:
                await self._purge()
        except (Lost, Refused) as error:
            self.word.problem = str(error)
        self.word.done = True

    # ---- the whole backlog

    async def _purge(self) -> None:
        node, project = self._node, self._project
        priorities = node.cluster_config.priorities if self._ask.priority is None else (self._ask.priority,)
        self.word.busy = sum(m.project == project and m.priority in priorities for m in node.in_flight)
        open_ones = [partition for partition in node.partitions.values() if partition.opened]
        ends = await asyncio.gather(
            *(self._partition(partition, priorities) for partition in open_ones), return_exceptions=True
        )
        for partition, end in zip(open_ones, ends, strict=True):
            if end is None:
                self.word.partitions.append(partition.number)
            elif not isinstance(end, LaneChanged):
                raise end

    async def _partition(self, partition: Partition, priorities: Collection[str]) -> None:
        """Drop a partition's backlog. Raises LaneChanged if the partition is handed off meanwhile; the client then asks
        the next owner.
        """
        for lane in partition.lanes:
            self._generations[lane] = lane.generation
            self._dropped[lane] = SettledSet()
        lane = partition.lane
        last = await self._wait_for_feeds(lane, priorities)
        spills = {}
        for queue in self._queues(partition, priorities):
            self._drain(partition, queue, last)
            spills[queue] = queue.take_spill()
        later = [
            (each, subject) for each in partition.delay_lanes for subject in await self._subjects(each, priorities)
        ]
        for each, subject in later:
            gone = each.delayed.remove(subject.name.encode(), subject.last)
            self._drop(each, gone, self._queue_of(each, subject.name))
        for queue, (start, count) in spills.items():
            if count:
                await self._scan(lane, self._subject_of(queue), start, last)
        await self._of_the_catch_up(partition, priorities, last)
        for each, subject in later:
            await self._scan(each, subject.name, 1, subject.last)
            each.delayed.remove(subject.name.encode(), subject.last)
        for each in partition.lanes:
            await self._wait_until_durable(each)

    def _queues(self, partition: Partition, priorities: Collection[str]) -> list[Queue]:
        return [
            queue
            for queue in self._node.queues.of_project(self._project)
            if queue.partition == partition.number and queue.priority in priorities
        ]

    def _drain(self, partition: Partition, queue: Queue, last: int) -> None:
        """Drop the messages that the queue knows, except those of the lane after `last`."""
        places = self._node.ready.drain(queue)
        main = partition.lane
        if kept := [place.sequence for place in places if place.lane is main and place.sequence > last]:
            queue.requeue_sequences("lanes", kept)
            self._node.ready.reader.want(queue)
        waits = [place.sequence for place in places if place.lane is main and place.sequence <= last]
        self._drop(main, waits, queue)
        for later in partition.delay_lanes:
            self._drop(later, [place.sequence for place in places if place.lane is later], queue)
        for place in self._node.eligibility.list_resting(queue):
            self._drop(place.lane, [place.sequence], queue)
            place.lane.dropped.add(place.sequence)
            self._node.eligibility.free(queue, place)  # later messages of its key need not wait for it

    async def _of_the_catch_up(self, partition: Partition, priorities: Collection[str], last: int) -> None:
        """Drop the backlog, and messages spilled since, of a partition that is still catching up after a takeover."""
        lane = partition.lane
        if not lane.is_catching_up:
            return
        while lane.is_catching_up:
            for queue in self._queues(partition, priorities):
                self._drain(partition, queue, last)
            await asyncio.sleep(_PAUSE_S)
            self._check(lane)
        for queue in self._queues(partition, priorities):
            self._drain(partition, queue, last)
            start, count = queue.take_spill()
            if count:
                queue.spill(max(start, last + 1), count)  # an upper limit; the reader corrects it when it gets there
                await self._scan(lane, self._subject_of(queue), start, last)

    def _subject_of(self, queue: Queue) -> str:
        return names.lane_subject(self._node.env, queue.partition, queue.project, queue.group, queue.priority)

    async def _wait_for_feeds(self, lane: FedLane, priorities: Collection[str]) -> int:
        """Wait until the queues know every message that the stream holds now: after an outage of the store, feeds lag
        behind. Return the last sequence of the present backlog.
        """
        subjects = await self._subjects(lane, priorities)
        last = max([lane.fed_to, *(subject.last for subject in subjects)])
        for subject in subjects:
            while lane.fed_to < last and await self._has_unfed(lane, subject.name, last):
                self._check(lane)
                await asyncio.sleep(_POLL_S)
        return last

    async def _has_unfed(self, lane: FedLane, subject: str, last: int) -> bool:
        try:
            found = await self._node.store.scan(lane.id, subject, lane.fed_to + 1, 1)
        except (Lost, Refused):
            return True
        return bool(found) and lane.fed_to < found[0] <= last

    async def _subjects(self, lane: FedLane, priorities: Collection[str]) -> list[Subject]:
        while True:
            self._check(lane)
            try:
                found = await self._node.store.count_by_subject(lane.id, self._project)
            except (Lost, Refused):
                await asyncio.sleep(_PAUSE_S)
            else:
                return list(parse(lane.id, found.counts, found.last, priorities))

    async def _scan(self, lane: FedLane, subject: str, start: int, last: int) -> None:
        """Drop a subject's messages between `start` and `last` that are in the store, and neither settled nor being
        handled.

        Retries until the store answers: no queue knows these messages any more.
        """
        while start <= last:
            self._check(lane)
            try:
                page = await self._node.store.scan(lane.id, subject, start, PAGE)
            except (Lost, Refused) as error:
                _log.debug("scanning again", subject=subject, error=str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            waits = await self._list_waiting(lane, [sequence for sequence in page if sequence <= last])
            self._drop(lane, waits, self._queue_of(lane, subject))
            if len(page) < PAGE:
                return
            start = page[-1] + 1
            while lane.log.unsynced_count > _MOST_UNSYNCED:
                await asyncio.sleep(_POLL_S)
                self._check(lane)

    async def _list_waiting(self, lane: FedLane, sequences: list[int]) -> list[int]:
        """Return the sequences that are neither settled nor being handled; valid until the next await."""
        while True:
            self._check(lane)
            out, dropped = self._node.list_out(lane), self._dropped[lane]
            sequences = [
                sequence
                for sequence in sequences
                if not (sequence in dropped or sequence in lane.settled or sequence in lane.held or sequence in out)
            ]
            if not lane.log.is_awaiting(sequences):
                return sequences
            await asyncio.sleep(_POLL_S)  # a completion is being settled; its result is known soon

    def _drop(self, lane: Lane, sequences: Iterable[int], queue: Queue) -> None:
        rising = sorted(sequences)
        if rising:
            self._dropped[lane].add_sorted(rising)
            self._latest[lane] = rising
            self._node.queues.activity.note(queue)
            self.word.dropped += self._node.settlement.drop(lane, rising, queue)

    def _queue_of(self, lane: FedLane, subject: str) -> Queue:
        """Return the queue of a subject. A delayed message may not have one yet."""
        words = subject.split(".")
        return self._node.queues.get(
            lane.id.partition, self._project, int(words[4]), self._node.cluster_config.priorities.index(words[5])
        )

    async def _wait_until_durable(self, lane: FedLane) -> None:
        """Wait until the log has all drops. The last batch is in the last record."""
        while lane.log.is_awaiting(self._latest.get(lane, ())):
            self._check(lane)
            await asyncio.sleep(_POLL_S)

    def _check(self, lane: FedLane) -> None:
        if lane.fenced or lane.generation != self._generations[lane]:
            raise LaneChanged

    # ---- single messages

    async def _cancel(self, targets: list[DropTarget]) -> None:
        for target in targets:
            partition = self._node.partitions.get(target.partition)
            if partition is None or not partition.opened:
                continue
            lane = next((each for each in partition.lanes if each.id.kind == target.kind), partition.lane)
            self._generations[lane] = lane.generation
            try:
                await self._cancel_one(lane, target)
            except LaneChanged:
                continue
            self.word.partitions.append(target.partition)

    async def _cancel_one(self, lane: FedLane, target: DropTarget) -> None:
        (stored,) = await self._node.store.get(lane.id, [target.sequence])
        sequence = target.sequence
        self._dropped.setdefault(lane, SettledSet())
        mine = await self._list_waiting(lane, [sequence])
        if sequence in lane.held or sequence in self._node.list_out(lane):
            self.word.busy += 1
        elif stored is None or stored.at != target.at or not mine:
            self.word.gone += 1
        else:
            self._drop(lane, [sequence], self._queue_of(lane, stored.subject))
            if not lane.delayed.cancel(stored.subject.encode(), sequence):
                lane.dropped.add(sequence)
            if (queue := lane.queues.get(stored.subject.encode())) is not None:
                self._node.eligibility.free(queue, MessageRef(lane, sequence))  # a message of its key may wait
            await self._wait_until_durable(lane)
