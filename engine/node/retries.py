"""Messages of ordered topics that have failed: they stay in their lane, and here until their next attempt is due."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from engine.clock import now_ns
from engine.node.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.index import Queue
    from engine.order import Place


class Retries:
    """`again(queue, place, generation)` is called when a message's time has come."""

    def __init__(self, again: Callable[[Queue, Place, int], None]) -> None:
        self._again = again
        self._heap: list[tuple[int, int, Queue, Place, int]] = []
        self._count = 0
        self._alarm = Alarm(self._ring)

    def add(self, at: int, queue: Queue, place: Place, generation: int) -> None:
        """`at` is monotonic ns."""
        self._count += 1
        heappush(self._heap, (at, self._count, queue, place, generation))
        self._set(now_ns())

    def queues(self) -> Iterator[Queue]:
        """Of each message that waits here, its queue."""
        return (each[2] for each in self._heap if each[3].lane.generation == each[4])

    def of(self, queue: Queue) -> list[Place]:
        """A queue's."""
        return [each[3] for each in self._heap if each[2] is queue and each[3].lane.generation == each[4]]

    def stop(self) -> None:
        self._heap.clear()
        self._alarm.cancel()

    def _ring(self) -> None:
        now = now_ns()
        while self._heap and self._heap[0][0] <= now:
            _, _, queue, place, generation = heappop(self._heap)
            self._again(queue, place, generation)
        self._set(now)

    def _set(self, now: int) -> None:
        if self._heap:
            self._alarm.set(self._heap[0][0], now)
