"""The unfair control: one queue for all, first come, first served. No quota, no priority, no tenants."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import NOTHING_USED, Grant, Q

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.scheduler.interface import Used
    from evenlane.quota.topics.topic import Topic


class _Place:
    """Whether the queue is ready, and which of its entries in the order counts."""

    __slots__ = ("entry", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.entry = 0


class FifoScheduler(Generic[Q]):
    """`arrived_at(queue)` tells when the queue's head came, on any one scale."""

    def __init__(self, arrived_at: Callable[[Q], int]) -> None:
        self._arrived_at = arrived_at
        self._order: list[tuple[int, int, Q]] = []
        self._taken: Q | None = None  # its head has changed since it was put in order
        self._count = 0
        self._grant: Grant[Q] = Grant()

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """There are no rules."""

    def ready(self, queue: Q, now: int) -> None:  # noqa: ARG002
        place = queue.slot
        if not isinstance(place, _Place):
            place = queue.slot = _Place()
        if not place.ready:
            place.ready = True
            self._enter(queue, place)

    def empty(self, queue: Q, now: int) -> None:  # noqa: ARG002
        if isinstance(queue.slot, _Place):
            queue.slot.ready = False

    def next(self, now: int) -> Grant[Q] | None:  # noqa: ARG002
        self._order_taken()
        while self._order:
            _, entry, queue = heappop(self._order)
            place = queue.slot
            if isinstance(place, _Place) and place.ready and place.entry == entry:
                self._taken = self._grant.queue = queue
                return self._grant
        return None

    def again(self, queue: Q, now: int) -> Grant[Q] | None:
        raise NotImplementedError("the control takes no batches")

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """Nothing was charged."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """Nothing was charged."""

    def used(self, project: str, now: int) -> Used:  # noqa: ARG002
        return NOTHING_USED

    def wake_at(self) -> int | None:
        return None

    def why(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
        return "handlers_busy" if isinstance(queue.slot, _Place) and queue.slot.ready else None

    def _order_taken(self) -> None:
        """The queue handed out last stands in order of its new head, which its owner has taken by now."""
        queue, self._taken = self._taken, None
        if queue is not None and isinstance(queue.slot, _Place) and queue.slot.ready:
            self._enter(queue, queue.slot)

    def _enter(self, queue: Q, place: _Place) -> None:
        self._count += 1
        place.entry = self._count
        heappush(self._order, (self._arrived_at(queue), self._count, queue))
