"""Enforces ack_wait: cancels a handler that gives no sign of life for that long, or abandons it if it runs
in a thread.
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
    timed out, `on_hung(threads)` with the number of threads that hang.

    Invariant: an attempt that has timed out has `timed_out` set in each of its messages. In a thread it has then been
    reported as failed, though the thread runs on; in the event loop, the worker's task has been cancelled.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        on_timed_out: Callable[[Message, BaseException], None],
        on_hung: Callable[[int], None],
    ) -> None:
        self._workers, self._on_timed_out, self._on_hung = workers, on_timed_out, on_hung
        self._throttle = LogThrottle(_MOST_LOGGED, _log_more)
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

    def _check(self, worker: Worker, now: int) -> None:
        first = worker.messages[0]
        alive_at = max(message.alive_at for message in worker.messages)
        if first.queue.rules.ack_wait <= 0 or now - alive_at <= first.queue.rules.ack_wait:
            return
        if not worker.threaded:
            for message in worker.messages:
                message.timed_out = True
            if worker.task is not None:
                worker.task.cancel()
                self._log_hung("handler cancelled: no sign of life within ack_wait", first)
            # a handler that swallows the cancellation is cancelled again after another ack_wait
            first.alive_at = now
        elif not first.timed_out:
            self._log_hung("handler thread given up: no sign of life within ack_wait", first)
            for message in worker.messages:
                message.timed_out = True
                self._on_timed_out(message, HandlerTimedOut())
            self._on_hung(sum(1 for w in self._workers if w.messages and w.threaded and w.messages[0].timed_out))

    def _log_hung(self, what: str, message: Message) -> None:
        if self._throttle.may_log(message.project):
            _log.warning(what, **message_fields(message), ack_wait_s=message.queue.rules.ack_wait / _SECOND)


def _log_more(count: int, projects: dict[str, int], others: int) -> None:
    _log.warning("more handlers gave no sign of life", count=count, projects=projects, others=others)
