"""Reports the end of attempts to `CompletionHandler`, the in-flight gate, the scheduler and the latency statistics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.handler_exceptions import Pause, check_form
from evenlane.engine.node.handlers import fork_guard
from evenlane.engine.node.handlers.ack_deadline import HandlerTimedOut
from evenlane.engine.node.handlers.invoke import Untrusted, is_of_handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
    from evenlane.engine.node.handlers.ports import AttemptEnds
    from evenlane.engine.node.handlers.worker import Worker


class AttemptReporter:
    """Reports each attempt once. `on_success(message, now)` is called for each message whose handler returned. A
    message that timed out in a thread is reported when it times out; the end of its thread changes nothing.
    """

    def __init__(self, ends: AttemptEnds, gate: InFlightGate, scheduler: Scheduler[Queue], times: LatencyStats) -> None:
        self._ends, self._gate, self._scheduler, self._times = ends, gate, scheduler, times
        self.on_success: Callable[[Message, int], None] = ends.on_success

    def on_fork(self) -> None:
        """Disable reports in a child process that a handler forked: the child ends where the handler returns."""
        self.on_success = lambda _message, _now: fork_guard.end_child()

    def on_thread_timeout(self, message: Message, error: BaseException) -> None:
        """Fail the attempt, though its thread runs on: the message's copy is handled from now on."""
        self._ends.on_failure(message, error)
        self._gate.remove(message)

    def on_return(self, worker: Worker, messages: list[Message], now: int) -> None:
        """Report a handler that returned."""
        for message in messages:
            # a message that timed out in a thread has left the gate already
            if message.recorded and not (message.timed_out and worker.threaded):
                self._gate.remove(message)
            failure: BaseException | None = getattr(message, "failure", None)
            if message.timed_out:
                self._on_late_end(worker, message, now)
            elif failure is not None:  # the batch has reported it
                self._report_one(worker, message, failure)
            else:
                self.on_success(message, now)
        self._times.note_batch_end(messages, now)
        first = messages[0]
        self._scheduler.finish(first.queue, now, now - first.started, len(messages))

    def _on_late_end(self, worker: Worker, message: Message, now: int) -> None:
        if not worker.threaded:  # it was cancelled, and returned nevertheless
            if worker.task is not None and worker.task.cancelling():
                worker.task.uncancel()
            self.on_success(message, now)

    def on_error(self, worker: Worker, error: BaseException, *, stopping: bool, may_cancel: bool) -> None:
        """Report a handler that raised, or was cancelled.

        Re-raises the error if it isn't the handler's. `stopping`: the node is ending its workers. `may_cancel`: if the
        task was cancelled, the node did it.
        """
        task = worker.task
        timed_out = any(message.timed_out for message in worker.messages)
        if timed_out and task is not None and not stopping:
            while task.cancelling():  # even if the handler turned the cancellation into another error
                task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            if not timed_out:
                if task is not None and task.cancelling() and may_cancel:
                    raise error  # the drain ran out of time: its messages stay unsettled
                error = RuntimeError("the handler was cancelled from within")
            else:
                error = HandlerTimedOut()
        elif not is_of_handler(error, task, stopping=stopping):
            raise error
        self._report(worker, error)

    def _report(self, worker: Worker, error: BaseException) -> None:
        now = now_ns()
        for message in worker.messages:
            self._report_one(worker, message, getattr(message, "failure", error))
            if message.recorded and not (message.timed_out and worker.threaded):
                self._gate.remove(message)  # after the report, because a fallback may follow
        if not isinstance(error, Untrusted):  # that is, the handler was started
            self._times.note_batch_end(worker.messages, now)
        first = worker.messages[0]
        self._scheduler.finish(first.queue, now, now - first.started, len(worker.messages))

    def _report_one(self, worker: Worker, message: Message, error: BaseException) -> None:
        fork_guard.end_child()
        error = check_form(error)
        if isinstance(error, Untrusted):
            self._ends.on_not_started(message)
        elif message.timed_out and worker.threaded:
            pass  # its failure was reported when it timed out
        elif isinstance(error, Pause):
            self._ends.on_pause(message, error)
        else:
            self._ends.on_failure(message, error)
