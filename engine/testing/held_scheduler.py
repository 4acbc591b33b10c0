"""A scheduler that starts nothing while the test kit doesn't run the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Grant, QuotaUse, Scheduler
    from evenlane.quota.topics.topic import Topic


class HeldScheduler:
    """Passes everything on to `scheduler`, but grants nothing unless `is_open` is set: a test puts several messages,
    and then lets them run.
    """

    def __init__(self, scheduler: Scheduler[Queue]) -> None:
        self._scheduler = scheduler
        self.is_open = False

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        self._scheduler.configure(project, topic, now, whole)

    def save_up(self, project: str, batch: int) -> None:
        self._scheduler.save_up(project, batch)

    def ready(self, queue: Queue, now: int) -> None:
        self._scheduler.ready(queue, now)

    def empty(self, queue: Queue, now: int) -> None:
        self._scheduler.empty(queue, now)

    def next(self, now: int) -> Grant[Queue] | None:
        return self._scheduler.next(now) if self.is_open else None

    def grant_again(self, queue: Queue, now: int) -> Grant[Queue] | None:
        return self._scheduler.grant_again(queue, now)

    def affords_at(self, queue: Queue, now: int, count: int) -> int:
        return self._scheduler.affords_at(queue, now, count)

    def finish(self, queue: Queue, now: int, service: int, count: int = 1) -> None:
        self._scheduler.finish(queue, now, service, count)

    def refund(self, queue: Queue, now: int, count: int = 1) -> None:
        self._scheduler.refund(queue, now, count)

    def measure_use(self, project: str, now: int) -> QuotaUse:
        return self._scheduler.measure_use(project, now)

    def wake_at(self) -> int | None:
        return self._scheduler.wake_at() if self.is_open else None

    def wait_reason(self, queue: Queue, now: int) -> str | None:
        return self._scheduler.wait_reason(queue, now)
