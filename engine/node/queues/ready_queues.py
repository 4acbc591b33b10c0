"""What queues have at hand: who has something to hand out, who is read for, and who gives its payloads up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.queue.entry import MemoryBudget, MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.handlers.worker_pool import WorkerPool
    from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
    from evenlane.engine.node.queues.payload_reader import PayloadReader
    from evenlane.engine.node.queues.registry import QueueRegistry

_RECLAIMED_S = 1.0  # for which a queue whose payloads were given up isn't read again


class ReadyQueues:
    """The parts of the node that have to do with them are set by `join`."""

    def __init__(self, limits: MemoryBudget, scheduler: Scheduler[Queue]) -> None:
        self._limits, self._scheduler = limits, scheduler

    def join(
        self,
        holdings: OwnedPartitions,
        queues: QueueRegistry,
        reader: PayloadReader,
        workers: WorkerPool,
        turns: Eligibility,
    ) -> None:
        self._holdings, self._reader, self._workers, self._turns = holdings, reader, workers, turns
        self._activity, self._noted = queues.activity, queues.activity.noted

    def at_hand(self, queue: Queue) -> None:
        """A queue whose hand was empty has something to hand out, or to be read."""
        if queue not in self._noted:
            self._activity.note(queue)
        if self._holdings.put_off(queue):
            return  # should its take-over begin anew, nothing of it must be out
        if queue.hand:
            self._scheduler.ready(queue, now_ns())
            self._workers.wake()
        if self._turns.is_laid_down(queue):
            return  # what was read now would be laid down again
        if not queue.hand or (queue.order is not None and queue.order.next):
            self._reader.want(queue)

    def all_at_hand(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            self.at_hand(queue)

    def came_due(self, queue: Queue) -> None:
        """It got delayed messages whose time has come."""
        if queue.hand:
            self._reader.want(queue)
        else:
            self.at_hand(queue)

    def put_to_sleep_or_wake(self, queue: Queue) -> None:
        """Its rules have changed."""
        if queue.asleep:
            self.lay_down(queue, now_ns())
        else:
            self.at_hand(queue)

    def lay_down(self, queue: Queue, now: int) -> None:
        """Others need the room that its payloads take."""
        queue.lay_down(self._limits)
        self._scheduler.empty(queue, now)
        self._reader.taken()

    def reclaim(self) -> None:
        """Reads have found no room for a second: those with the most payloads at hand give them up."""
        goal, reclaimed = self._limits.payload_bytes // 2, []
        for queue in sorted(self._noted, key=lambda queue: queue.hand_bytes, reverse=True):
            if self._limits.held <= goal or len(queue.hand) < 2:
                break
            self.lay_down(queue, now_ns())
            reclaimed.append(queue)
        # (others read first)
        asyncio.get_running_loop().call_later(_RECLAIMED_S, self.all_at_hand, reclaimed)

    def drain(self, queue: Queue) -> list[MessageRef]:
        """All that a queue has indexed, and has no more from now on; none if its partition isn't this node's."""
        lanes = self._holdings.lanes_of(queue.partition)
        if lanes is None:
            return []
        places = queue.drain(*lanes, self._limits)
        self._scheduler.empty(queue, now_ns())
        self._reader.taken()
        return places
