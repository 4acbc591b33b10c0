"""Keeps failed messages of ordered topics until their next attempt is due; they stay in their lane meanwhile."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.project_limit import ProjectLimit
from evenlane.engine.node.queues.wake_timer import WakeTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.withheld import WithheldProjects

_REASON = "ordered"
_MOST = 4_096  # per project, about 1 KB each


class InPlaceRetries:
    """Messages that wait for their next attempt. `on_due(queue, place, generation)` is called when it is due. A project
    with too many of them is withheld.

    Invariant: `_of` has the waiting messages by queue, with their lane's generation at the time. A heap entry that
    `_of` doesn't confirm is stale and ignored.
    """

    def __init__(self, on_due: Callable[[Queue, MessageRef, int], None], withheld: WithheldProjects) -> None:
        self._on_due, self._limit = on_due, ProjectLimit(withheld, _REASON, _MOST)
        self._heap: list[tuple[int, int, Queue, MessageRef, int]] = []
        self._of: dict[Queue, dict[MessageRef, int]] = {}
        self._count = 0
        self._wake_timer = WakeTimer(self._ring)

    def add(self, at: int, queue: Queue, place: MessageRef, generation: int) -> None:
        """Keep a message until `at` (monotonic ns)."""
        self._count += 1
        heappush(self._heap, (at, self._count, queue, place, generation))
        self._of.setdefault(queue, {})[place] = generation
        self._limit.add(queue.project)
        self._set(now_ns())

    def queues(self) -> Iterator[Queue]:
        """The queue of each waiting message."""
        return (queue for queue in self._of for _ in self.list_waiting(queue))

    def list_waiting(self, queue: Queue) -> list[MessageRef]:
        """The waiting messages of a queue, without stale ones."""
        return [place for place, known in self._of.get(queue, {}).items() if place.lane.generation == known]

    def discard(self, queue: Queue, place: MessageRef) -> None:
        """Drop a message that won't be retried here. Its heap entry becomes stale."""
        if self._of.get(queue, {}).pop(place, None) is not None:
            self._fewer(queue)

    def discard_stale(self) -> None:
        """Drop messages of lanes that were handed over or replaced."""
        for queue in list(self._of):
            for place, known in list(self._of[queue].items()):
                if place.lane.generation != known:
                    self.discard(queue, place)

    def stop(self) -> None:
        self._heap.clear()
        self._of.clear()
        self._wake_timer.cancel()

    def _ring(self) -> None:
        now = now_ns()
        while self._heap and self._heap[0][0] <= now:
            _, _, queue, place, generation = heappop(self._heap)
            if self._of.get(queue, {}).get(place) == generation:
                self.discard(queue, place)
                self._on_due(queue, place, generation)
        self._set(now)

    def _fewer(self, queue: Queue) -> None:
        if not self._of[queue]:
            del self._of[queue]
        self._limit.remove(queue.project)

    def _set(self, now: int) -> None:
        if self._heap:
            self._wake_timer.set(self._heap[0][0], now)
