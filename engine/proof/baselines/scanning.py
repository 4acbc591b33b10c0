"""A control of `scale`: the limiter one would write first, which looks at queue after queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import NOTHING_USED, Grant, Q

if TYPE_CHECKING:
    from evenlane.engine.core.scheduler.interface import Used
    from evenlane.quota.topics.topic import Topic


class ScanningScheduler(Generic[Q]):
    """Queues in turn, each asked whether it has something: a decision costs O(queues that were ever used)."""

    def __init__(self) -> None:
        self._queues: list[Q] = []
        self._ready: set[int] = set()
        self._turn = 0
        self._grant: Grant[Q] = Grant()

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """There are no rules."""

    def ready(self, queue: Q, now: int) -> None:  # noqa: ARG002
        if queue.slot is None:
            queue.slot = len(self._queues)
            self._queues.append(queue)
        self._ready.add(id(queue))

    def empty(self, queue: Q, now: int) -> None:  # noqa: ARG002
        self._ready.discard(id(queue))

    def next(self, now: int) -> Grant[Q] | None:  # noqa: ARG002
        for _ in self._queues:
            self._turn = (self._turn + 1) % len(self._queues)
            queue = self._queues[self._turn]
            if id(queue) in self._ready:
                self._grant.queue = queue
                return self._grant
        return None

    def again(self, queue: Q, now: int) -> Grant[Q] | None:  # noqa: ARG002
        if id(queue) not in self._ready:
            return None
        self._grant.queue = queue
        return self._grant

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """Nothing was charged."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """Nothing was charged."""

    def used(self, project: str, now: int) -> Used:  # noqa: ARG002
        return NOTHING_USED

    def wake_at(self) -> int | None:
        return None

    def why(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
        return "handlers_busy" if id(queue) in self._ready else None
