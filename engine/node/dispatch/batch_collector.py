"""Collects messages of a queue for a batch: none of them starts until the batch is full, or has waited long enough. A
batch is full when all its messages are there and the quota has room for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.wake_timer import WakeTimer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.queues.ready_queues import ReadyQueues

_LONGEST_STEP = 10_000_000  # ns between two checks whether a batch is full
_STEPS = 8  # checks during a wait, at least


class BatchCollector:
    """Queues that collect. They hold no slot, and nothing is charged: for the scheduler they are empty meanwhile.

    Invariant: `_until` has the queues that collect, each with the time (monotonic ns) at which its batch starts, full
    or not. A queue stays there until a message of it has started: the first ones may have expired.
    """

    def __init__(self, ready: ReadyQueues, scheduler: Scheduler[Queue]) -> None:
        self._ready, self._scheduler = ready, scheduler
        self._until: dict[Queue, int] = {}
        self._timer = WakeTimer(self._check)

    def must_wait(self, queue: Queue, now: int) -> bool:
        """Whether the queue collects more messages first. Called with the head of the queue about to start."""
        rules = queue.rules
        until = self._until.setdefault(queue, now + rules.batch_wait)
        look_at = min(until, self._full_at(queue, now))
        if now >= look_at:
            return False
        self._timer.set(look_at, now)
        return True

    def end(self, queue: Queue) -> None:
        """A batch of the queue has started, or none of its messages is left."""
        self._until.pop(queue, None)

    def discard(self, queues: Iterable[Queue]) -> None:
        """Forget queues that are about to belong to another node."""
        for queue in queues:
            self._until.pop(queue, None)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        """Report the queues whose wait is over to the scheduler; `must_wait` is asked once it grants them."""
        now = now_ns()
        for queue, until in list(self._until.items()):
            if not queue.ready:  # its payloads were unloaded
                del self._until[queue]
            look_at = min(until, self._full_at(queue, now))
            if now >= look_at or not queue.ready:
                self._ready.on_queue_ready(queue)
            else:
                self._timer.set(look_at, now)

    def _full_at(self, queue: Queue, now: int) -> int:
        """When to look again whether the batch is full; now or earlier if it is."""
        rules = queue.rules
        if len(queue.ready) < rules.handling.batch:
            return now + min(_LONGEST_STEP, rules.batch_wait // _STEPS + 1)
        return self._scheduler.affords_at(queue, now, rules.handling.batch)
