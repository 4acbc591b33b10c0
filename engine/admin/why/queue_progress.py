"""Node's side of the positions in `evenlane why --json`: how far each of a project's queues has come (E11)."""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.positions import locate_queue
from evenlane.engine.core.records.backlog_answer import QueueProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.positions import QueuePosition
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.node import Node

_MOST = 200  # queues of an answer, some 60 bytes each
_SLICE = 20_000  # messages whose sequence is known per turn of the loop: about a millisecond
_DURABLE_S = 1.0  # an answer waits that long for results to be durable
_LOOK_S = 0.02


class _Found(NamedTuple):
    """A queue, as it was found. `generation` is the lane's at that moment."""

    queue: Queue
    lane: FedLane
    generation: int
    waiting: int
    in_flight: int
    at: QueuePosition | None

    def read(self, *, is_durable: bool) -> QueueProgress:
        queue, at = self.queue, self.at
        seen = (queue.priority, queue.group, queue.partition, self.lane.epoch, self.waiting, self.in_flight)
        if at is None:
            return QueueProgress(*seen)
        return QueueProgress(*seen, at.head - 1 if is_durable else None, at.head, at.next, at.end)


class ProgressInspector:
    """Inspects the queues of a project on a node, in slices of the loop's time. It reads existing state only."""

    def __init__(self, node: Node, *, most: int = _MOST, durable_s: float = _DURABLE_S) -> None:
        self._node, self._most, self._durable_s = node, most, durable_s

    async def inspect(self, project: str, priority: str = "") -> tuple[list[QueueProgress], int]:
        """The progress of up to `most` queues of a priority ("": of all), those with the largest backlog first, and the
        number left out.

        Positions are as of the moment when the queue was looked at. `settled` follows from them once all that had ended
        by then is durable; it is None if that takes longer than `durable_s`.
        """
        known = [queue for queue in self._node.queues.of_project(project) if priority in {"", queue.priority}]
        chosen = nsmallest(self._most, known, key=lambda queue: (-queue.backlog, queue.band, queue.group))
        found = await self._look(project, chosen)
        durable = await self._wait_until_durable({each.lane: each.lane.log.covering_number for each in found})
        serving = [each.read(is_durable=each.lane in durable) for each in found if self._serves(each)]
        return serving, len(known) - len(serving)

    async def _look(self, project: str, queues: Iterable[Queue]) -> list[_Found]:
        found: list[_Found] = []
        running, out, seen = *self._taken(project), 0
        for queue in queues:
            partition = self._node.partitions.get(queue.partition)
            if partition is not None:
                lane = partition.lane
                at = self._locate(queue, lane, out.get(queue, ()))
                found.append(_Found(queue, lane, lane.generation, queue.backlog, running[queue], at))
            seen += 1 + queue.unread
            if seen >= _SLICE:
                await asyncio.sleep(0)
                running, out, seen = *self._taken(project), 0
        return found

    def _taken(self, project: str) -> tuple[Counter[Queue], dict[Queue, list[Message]]]:
        """The number of messages in flight, and the messages that were taken from the queue and haven't ended."""
        running = [message for message in self._node.in_flight if message.project == project]
        out: dict[Queue, list[Message]] = {}
        for message in [*running, *self._node.failures.messages]:
            if message.project == project and message.generation == message.lane.generation:
                out.setdefault(message.queue, []).append(message)
        return Counter(message.queue for message in running), out

    def _locate(self, queue: Queue, lane: FedLane, taken: Iterable[Message]) -> QueuePosition | None:
        subject = names.lane_subject(self._node.env, queue.partition, queue.project, queue.group, queue.priority)
        out = [message.sequence for message in taken if message.lane is lane]
        out += [place.sequence for place in self._node.eligibility.list_resting(queue) if place.lane is lane]
        return locate_queue(queue, lane, subject.encode(), out)

    async def _wait_until_durable(self, numbers: Mapping[FedLane, int]) -> set[FedLane]:
        """The lanes whose log has come to these records in time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._durable_s
        while True:
            durable = {lane for lane, number in numbers.items() if lane.log.durable_number >= number}
            if len(durable) == len(numbers) or loop.time() >= until:
                return durable
            await asyncio.sleep(_LOOK_S)

    def _serves(self, found: _Found) -> bool:
        """Whether the node still owns the very stream: a newer owner may have come further, and have answered."""
        lane = found.lane
        partition = self._node.partitions.get(lane.id.partition)
        is_same = partition is not None and partition.lane is lane and lane.generation == found.generation
        return is_same and now_ns() < self._node.trusted_until
