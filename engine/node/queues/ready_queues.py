"""Decides which queues are ready for the scheduler, which are read for, and which unload their payloads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue import clear
from evenlane.engine.node.queues.payload_reader import PayloadReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.queues.activity import Activity
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes
    from evenlane.engine.node.queues.payload_memory import PayloadMemory
    from evenlane.engine.node.signals.events import NodeEvents
    from evenlane.engine.node.signals.work_signal import WorkSignal

_RECLAIMED_S = 1.0  # how long a queue whose payloads were reclaimed isn't read again


class ReadyQueues:
    """A queue's way to the scheduler: `on_queue_ready` is called whenever the queue may have a message to start.

    Invariants:
    - The scheduler has a queue as ready only if it has a ready message and `lanes` doesn't defer it.
    - Queues in `suspended` have messages that must wait for others; nothing is read for them until they are resumed.
    """

    def __init__(
        self,
        store: Store,
        env: str,
        memory: PayloadMemory,
        lanes: OwnedLanes,
        activity: Activity,
        scheduler: Scheduler[Queue],
        signal: WorkSignal,
        events: NodeEvents,
    ) -> None:
        self.memory, self.lanes, self._scheduler, self._signal = memory, lanes, scheduler, signal
        self._activity, self._noted = activity, activity.noted
        self.suspended: dict[Queue, None] = {}
        self.reader = PayloadReader(
            store, memory, lanes, env, self.on_queue_ready, events.on_message_missing, self._reclaim
        )

    def on_queue_ready(self, queue: Queue) -> None:
        """The queue has its first ready message, or messages to read."""
        if queue not in self._noted:
            self._activity.note(queue)
        if self.lanes.defer(queue):
            return  # if its takeover has to be repeated, none of its messages may have started
        if queue.ready:
            self._scheduler.ready(queue, now_ns())
            self._signal.notify()
        if queue in self.suspended:
            return  # its payloads would be unloaded again
        if not queue.ready or (queue.order is not None and queue.order.next):
            self.reader.want(queue)

    def add_all(self, queues: Iterable[Queue]) -> None:
        """`on_queue_ready` for several queues, in this order."""
        for queue in queues:
            self.on_queue_ready(queue)

    def on_due(self, queue: Queue) -> None:
        """The queue has gained delayed messages that are due."""
        if queue.ready:
            self.reader.want(queue)
        else:
            self.on_queue_ready(queue)

    def on_rules_change(self, queue: Queue) -> None:
        """The queue has been put to sleep, or woken up."""
        if queue.rules.asleep:
            self.memory.unload(queue, now_ns())
        else:
            self.on_queue_ready(queue)

    def suspend(self, queue: Queue) -> None:
        """Read nothing for the queue until `resume_all`."""
        self.suspended[queue] = None

    def resume_all(self) -> None:
        """Resume all suspended queues."""
        queues, self.suspended = self.suspended, {}
        self.add_all(queues)

    def drain(self, queue: Queue) -> list[MessageRef]:
        """Remove and return all messages of the queue whose sequence is known; none if its partition isn't
        this node's.
        """
        lanes = self.lanes.lanes.get(queue.partition)
        if lanes is None:
            return []
        found = clear.drain(queue, lanes, self.memory.limits)
        self._scheduler.empty(queue, now_ns())
        self.memory.wake_reads()
        return found

    def _reclaim(self) -> None:
        """Reads have found no room for a second: unload large queues."""
        reclaimed = self.memory.reclaim(self._noted)
        # (let other queues read first)
        asyncio.get_running_loop().call_later(_RECLAIMED_S, self.add_all, reclaimed)
