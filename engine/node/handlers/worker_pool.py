"""The worker pool: W tasks that take messages which may start, and run the handler on them.

A worker awaits the handler in its own task, so a handler that never suspends costs a function call, not a task. Idle
workers wait for the work signal, which wakes them one at a time. All workers share a slice of each turn of the event
loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.handled import HOLDER, MESSAGES
from evenlane.engine.node.handlers import fork_guard
from evenlane.engine.node.handlers.ack_deadline import AckDeadline
from evenlane.engine.node.handlers.loop_slice import LoopSlice
from evenlane.engine.node.handlers.worker import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.handlers.attempt_reporter import AttemptReporter
    from evenlane.engine.node.handlers.invoke import HandlerInvoker
    from evenlane.engine.node.handlers.ports import MessageSource
    from evenlane.engine.node.handlers.worker import Worker, Workers
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.work_signal import WorkSignal


class WorkerPool:
    """Runs `workers` on the messages of `source`.

    `is_ending()` is true while the node itself may cancel its tasks. `on_end(task)` is called when a worker ends and
    isn't replaced, `on_hung(threads)` with the number of threads that hang.

    Invariant: a worker has messages exactly while its handler runs, and `workers.busy` counts these workers.
    """

    def __init__(
        self,
        workers: Workers,
        source: MessageSource,
        calls: HandlerInvoker,
        reporter: AttemptReporter,
        scheduler: Scheduler[Queue],
        times: LatencyStats,
        trust: LeaseTrust,
        signal: WorkSignal,
        is_ending: Callable[[], bool],
        on_end: Callable[[asyncio.Task[None]], None],
        on_hung: Callable[[int], None],
    ) -> None:
        self._workers, self._source, self._calls, self._reporter = workers, source, calls, reporter
        self._scheduler, self._times, self._trust, self._signal = scheduler, times, trust, signal
        self._deadline = AckDeadline(workers.all, reporter.on_thread_timeout, on_hung)
        self._slice = LoopSlice(signal, self._deadline)
        self._is_ending, self._on_end = is_ending, on_end
        self._stopping = False
        self._sweeper: asyncio.Task[None] | None = None

    def credit(self, now: int) -> None:
        """Count the time of running handlers up to now."""
        for worker in self._workers.all:
            if worker.messages:
                self._times.note_running(worker.messages, now)

    def start(self) -> list[asyncio.Task[None]]:
        """Start the workers. Returns the other tasks, which must run as long as the node does."""
        self._deadline.looked_at = now_ns()
        for worker in self._workers.all:
            self._begin(worker)
        self._sweeper = asyncio.create_task(self._deadline.watch(), name="ack_wait")
        fork_guard.watch(self)
        return [self._sweeper]

    def on_fork(self) -> None:
        """In a child process that a handler forked: report nothing, and end it in the next turn of the loop."""
        self._reporter.on_fork()
        if self._sweeper is not None:
            self._sweeper.get_loop().call_soon(fork_guard.end_child)

    def _begin(self, worker: Worker) -> None:
        number = self._workers.all.index(worker)
        worker.task = asyncio.create_task(self._work(worker), name=f"worker {number}")
        worker.task.add_done_callback(partial(self._on_worker_end, worker))

    def _on_worker_end(self, worker: Worker, task: asyncio.Task[None]) -> None:
        """Replace a worker whose task was cancelled by its handler."""
        if self._may_cancel() or (not task.cancelled() and task.exception() is not None):
            self._on_end(task)
        else:
            self._begin(worker)

    def _may_cancel(self) -> bool:
        """Whether a cancelled worker was cancelled by the node; otherwise by a handler."""
        return self._stopping or self._is_ending()

    async def drain(self, deadline: float) -> list[Message]:
        """Start no more messages, and wait until the loop's time `deadline` for running handlers. Returns the messages
        of those that are still running.
        """
        self._stopping = True
        self._signal.close()
        tasks = [worker.task for worker in self._workers.all if worker.task is not None]
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        unfinished: set[asyncio.Task[None]] = set()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=left)
        stuck = self._workers.running
        for task in unfinished:
            task.cancel()
        for worker in self._workers.all:
            if worker.awaited is not None:
                worker.awaited.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=0.5)
        fork_guard.unwatch(self)
        self._calls.close()
        return stuck

    async def _work(self, worker: Worker) -> None:  # noqa: C901, PLR0912, PLR0915 - a call costs 1 % of a message
        calls, workers, source = self._calls, self._workers, self._source
        reporter, trust, slice_, signal = self._reporter, self._trust, self._slice, self._signal
        take, waiting, wait = source.next, signal.waiting, slice_.wait
        times, done = self._times, self._scheduler.finish
        task, note_handled = asyncio.current_task(), MESSAGES.set
        assert task is not None
        HOLDER.set(worker)
        now = now_ns()
        while not self._stopping:
            if now > slice_.end:
                await slice_.renew(now - slice_.end)
                now = now_ns()
                continue
            messages = take(now)
            if messages is None:
                await wait()
                now = now_ns()
                continue
            # This handler may take long. (`wake_one` repeats two of these checks; here they save a call per message.)
            if waiting and not signal.exhausted and not signal.waking:
                signal.wake_one()
            first = messages[0]
            worker.messages = messages
            call = first._queue.rules.call  # noqa: SLF001
            worker.threaded = call is None and calls.is_threaded(first)
            if first.recorded:
                for message in messages:
                    message.started = message.alive_at = message.ran_to = now
            workers.busy += 1
            try:
                # The lease is checked once more: the process may have been suspended since `now`.
                if call is not None and now_ns() < trust.until:
                    note_handled(messages)
                    await call(first)
                else:
                    await calls.run(messages)
            except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the node
                note_handled(NOTHING)  # the lines that follow are the node's own
                reporter.on_error(worker, error, stopping=self._stopping, may_cancel=self._may_cancel())
                now = now_ns()
            else:
                now = now_ns()
                if call is None or first.recorded or first.timed_out:
                    reporter.on_return(worker, messages, now)
                else:  # (`on_return` for one message, inlined)
                    reporter.on_success(first, now)
                    times.note_end(first, now)
                    done(first._queue, now, now - first.started)  # noqa: SLF001
            finally:
                workers.busy -= 1
                signal.exhausted = False
                worker.messages = NOTHING
            if task.cancelling() and not self._may_cancel():
                return  # the handler cancelled the task, which must not affect the next message
