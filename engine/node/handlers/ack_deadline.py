"""Enforces ack_wait: cancels a handler that gives no sign of life for that long, or abandons it if it runs
in a thread and can't be cancelled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.log_throttle import LogThrottle
from evenlane.engine.core.message.log_fields import message_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.handlers.worker import Worker

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_SWEEP_S = 0.1
_LATE = 2 * int(_SWEEP_S * _SECOND)
_MOST_LOGGED = 5  # log lines per project in ten seconds


class HandlerTimedOut(Exception):
    """The handler gave no sign of life for longer than ack_wait; the message is handed out again."""

    for_logs = "no sign of life for longer than ack_wait"

    def __init__(self) -> None:
        super().__init__(self.for_logs)


class AckDeadline:
    """Checks all workers every 0.1 s. `on_timed_out(message, error)` is called for each message of a thread that
    timed out, `on_hung(threads)` with the number of threads that hang, whenever it has grown.

    Invariant: an attempt that has timed out has `timed_out` set in each of its messages. In a thread it has then been
    reported as failed, though the thread runs on; a task for which the thread waits has been cancelled. In the event
    loop, the worker's task has been cancelled.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        on_timed_out: Callable[[Message, BaseException], None],
        on_hung: Callable[[int], None],
    ) -> None:
        self._workers, self._on_timed_out, self._on_hung = workers, on_timed_out, on_hung
        self._throttle = LogThrottle(_MOST_LOGGED, _log_more)
        self._hung = 0
        self.looked_at = now_ns()
        """The time of the last check (monotonic ns); it advances every 0.1 s while the event loop runs."""

    async def watch(self) -> None:
        self.looked_at = now_ns()
        try:
            while True:
                await asyncio.sleep(_SWEEP_S)
                now = now_ns()
                self._sweep(now, now - self.looked_at - _LATE)
                self.looked_at = now
        finally:
            self._throttle.stop()

    def _sweep(self, now: int, late: int) -> None:
        for worker in self._workers:
            if late > 0:  # the process or its event loop was stalled, which isn't the handler's fault
                for message in worker.messages:
                    message.alive_at += late
            if worker.messages:
                self._check(worker, now)
        hung = sum(1 for worker in self._workers if worker.messages and _is_hung(worker, now))
        self._hung, before = hung, self._hung
        if hung > before:
            self._on_hung(hung)

    def _check(self, worker: Worker, now: int) -> None:
        first = worker.messages[0]
        if not _is_overdue(worker, now):
            return
        if not worker.threaded:
            for message in worker.messages:
                message.timed_out = True
            if worker.task is not None:
                worker.task.cancel()
                self._log_hung("handler cancelled: no sign of life within ack_wait", first)
            # a handler that swallows the cancellation is cancelled again after another ack_wait
            first.alive_at = now
            return
        if not first.timed_out:
            if worker.awaited is None:
                self._log_hung("handler thread given up: no sign of life within ack_wait", first)
            else:
                self._log_hung("handler cancelled: no sign of life within ack_wait", first)
            for message in worker.messages:
                message.timed_out = True
                self._on_timed_out(message, HandlerTimedOut())
        if worker.awaited is not None:
            worker.awaited.cancel()
            first.alive_at = now  # as above; and it hangs only if this doesn't end the thread in time

    def _log_hung(self, what: str, message: Message) -> None:
        if self._throttle.may_log(message.project):
            _log.warning(what, **message_fields(message), ack_wait_s=message.queue.rules.ack_wait / _SECOND)


def _is_overdue(worker: Worker, now: int) -> bool:
    ack_wait = worker.messages[0].queue.rules.ack_wait
    return 0 < ack_wait < now - max(message.alive_at for message in worker.messages)


def _is_hung(worker: Worker, now: int) -> bool:
    """Whether a thread has timed out, and waits for nothing that can be cancelled."""
    is_given_up = worker.threaded and worker.messages[0].timed_out
    return is_given_up and worker.awaited is None and _is_overdue(worker, now)


def _log_more(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more handlers gave no sign of life", count=count, projects=projects, others=others)
