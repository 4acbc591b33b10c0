"""Handle: W workers, each a task that takes messages which may start, and runs the handler on them.

A worker awaits the handler in its own task: a handler that never blocks costs a function call, not a task. Idle workers
are parked and woken one at a time. Workers share each turn of the event loop in slices of some milliseconds, so that
handlers which never block don't keep the loop from reading. A message that may have been in flight when a process died
passes the gate first; all others start as they are chosen.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.message import Pause, well_formed
from evenlane.engine.node.handlers import fork_guard
from evenlane.engine.node.handlers.ack_deadline import AckDeadline, HandlerTimedOut
from evenlane.engine.node.handlers.invoke import HandlerInvoker, Untrusted, is_of_handler
from evenlane.engine.node.handlers.worker import NOTHING, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate

_BLOCK, _LONG_BLOCK = 100_000_000, 1_000_000_000  # ns
_TURNS_AFTER_BLOCK = 5  # of the loop
_PAUSE_AFTER_LONG_S = 0.1
_SLICE = 5_000_000  # ns; handling what is at hand before reading more keeps memory warm and small


class WorkerPool:
    """`take(now)` names the next message or None, `more(message, now)` another of the same queue or None,
    `outlived(message, now)` whether its time to live is over, `done` and `failed` are told how each one ended, and the
    scheduler that its slot is free; `returned(message)` gets one back that is to be handled later: its handler wasn't
    started, or asked for a `paused(message, pause)`.
    """

    def __init__(
        self,
        calls: HandlerInvoker,
        count: int,
        gate: InFlightGate,
        scheduler: Scheduler[Queue],
        times: LatencyStats,
        take: Callable[[int], Message | None],
        more: Callable[[Message, int], Message | None],
        outlived: Callable[[Message, int], bool],
        done: Callable[[Message, int], None],
        failed: Callable[[Message, BaseException], None],
        on_hung: Callable[[int], None],
        returned: Callable[[Message], None],
        paused: Callable[[Message, Pause], None],
    ) -> None:
        self._calls, self._count, self._gate, self._scheduler = calls, count, gate, scheduler
        self._take, self._more, self._outlived, self._done, self._failed = take, more, outlived, done, failed
        self._times = times
        self._returned, self._paused = returned, paused
        self._workers = [Worker() for _ in range(count)]
        self._silence = AckDeadline(self._workers, self._thread_given_up, on_hung)
        self._busy = 0
        self._dry = False  # there was nothing to take, and nobody has told of anything since
        self._parked: list[Worker] = []
        self._waking = False
        self._stopping = False
        self._slice_end = 0
        self._slice_due = False
        self._sweeper: asyncio.Task[None] | None = None
        self._is_ending: Callable[[], bool] = lambda: False
        self._on_end: Callable[[asyncio.Task[None]], None] = lambda _task: None

    @property
    def running(self) -> list[Message]:
        """What is being handled now."""
        return [message for worker in self._workers for message in worker.messages]

    def handled_by(self, task: asyncio.Task[Any]) -> list[Message]:
        """What the worker that runs in a task works on. For any thread."""
        return next((worker.messages for worker in self._workers if worker.task is task), [])

    @property
    def busy(self) -> int:
        """Slots in which a handler runs."""
        return self._busy

    def credit(self, now: int) -> None:
        """Count the time of what runs until now."""
        for worker in self._workers:
            if worker.messages:
                self._times.running(worker.messages, now)

    def running_of(self, lane: Lane) -> list[int]:
        """Its messages whose handlers' word is still to come: what a hung thread works on has failed already."""
        return [
            message.sequence
            for worker in self._workers
            for message in worker.messages
            if message.lane is lane
            and message.generation == lane.generation
            and not (message.given_up and worker.threaded)
        ]

    def start(
        self,
        is_ending: Callable[[], bool] = lambda: False,
        on_end: Callable[[asyncio.Task[None]], None] = lambda _task: None,
    ) -> list[asyncio.Task[None]]:
        """Returns the tasks, beside the workers, that must run as long as the node does. `is_ending()` is true while
        the node itself may cancel its tasks; `on_end(task)` is called when a worker ends for good.
        """
        self._is_ending, self._on_end = is_ending, on_end
        self._silence.looked_at = now_ns()
        for worker in self._workers:
            self._begin(worker)
        self._sweeper = asyncio.create_task(self._silence.watch(), name="ack_wait")
        fork_guard.watch(self._forked, asyncio.get_running_loop())
        return [self._sweeper]

    def _forked(self) -> None:
        """In a child that a handler forked: whatever would follow of a message ends the process instead."""
        self._done = lambda _message, _now: fork_guard.end_child()

    def _begin(self, worker: Worker) -> None:
        number = self._workers.index(worker)
        worker.task = asyncio.create_task(self._work(worker), name=f"worker {number}")
        worker.task.add_done_callback(partial(self._worker_ended, worker))

    def _worker_ended(self, worker: Worker, task: asyncio.Task[None]) -> None:
        """A handler may have cancelled the task that it ran in: the worker goes on in another one."""
        if self._may_cancel() or (not task.cancelled() and task.exception() is not None):
            self._on_end(task)
        else:
            self._begin(worker)

    def _may_cancel(self) -> bool:
        """Whether a cancelled worker was cancelled by the node: else it was by a handler."""
        return self._stopping or self._is_ending()

    def wake(self) -> None:
        """There may be something to do: one parked worker looks, and wakes the next if it finds something."""
        self._dry = False
        self._wake_one()

    def _wake_one(self) -> None:
        if self._parked and not self._waking and not self._stopping:
            self._waking = True
            parked = self._parked.pop().parked
            if parked is not None and not parked.done():
                parked.set_result(None)

    async def drain(self, deadline: float) -> list[Message]:
        """Start nothing more, wait until the loop's time `deadline` for what runs; what had to be left."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        for worker in self._parked:
            if worker.parked is not None and not worker.parked.done():
                worker.parked.set_result(None)
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        left = max(0.0, deadline - loop.time())
        unfinished: set[asyncio.Task[None]] = set()
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=left)
        stuck = self.running
        for task in unfinished:
            task.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=0.5)
        fork_guard.unwatch(self._forked)
        self._calls.close()
        return stuck

    # ---- what may start

    def _next(self, now: int) -> list[Message] | None:
        """What may start next; what has to be recorded first goes to the gate meanwhile."""
        gate = self._gate
        if gate.held and (recorded := self._recorded(now)) is not None:
            return recorded
        take, batched = self._take, self._calls.batched
        while not self._dry and self._busy + gate.held < self._count:
            message = take(now)
            if message is None:
                self._dry = True
                break
            messages = self._batch(message, now) if batched else [message]
            if not message.recorded and not (batched and any(each.recorded for each in messages)):
                if gate.held:  # messages in the gate get their record although fresh ones keep coming
                    gate.flush()
                return messages
            gate.enter(messages)
        gate.flush()
        return None

    def _recorded(self, now: int) -> list[Message] | None:
        """Of what stands in the gate, the next that may start. All of it is given back when the lease is over, or no
        record can be written; and what is of a stream that is another's or another one by now, or has outlived its time
        to live.
        """
        gate = self._gate
        if gate.failing or self._calls.trusted_until <= now:
            for messages in reversed(gate.take_all()):  # the first of them is to be first again
                self._give_back(messages, now)
            return None
        while (unit := gate.pop()) is not None:
            if not _void(unit) and not any(self._outlived(message, now) for message in unit):
                return unit
            self._give_back(unit, now)
        return None

    def _batch(self, message: Message, now: int) -> list[Message]:
        messages = [message]
        most = self._calls.most(message)
        while len(messages) < most and (another := self._more(message, now)) is not None:
            messages.append(another)
        return messages

    def _give_back(self, messages: list[Message], now: int) -> None:
        for message in reversed(messages):
            self._gate.left(message)
            self._returned(message)
        self._scheduler.refund(messages[0].queue, now, len(messages))
        self._dry = False

    # ---- handling

    async def _work(self, worker: Worker) -> None:  # noqa: C901, PLR0912 - a call costs 1 % of a message
        calls, plain, gate = self._calls, self._calls.plain, self._gate
        task = asyncio.current_task()
        assert task is not None
        times, done = self._times, self._scheduler.done
        now = now_ns()
        while not self._stopping:
            if now > self._slice_end:
                await self._yield(worker, now - self._slice_end)
                now = now_ns()
                continue
            messages = self._next(now)
            if messages is None:
                await self._park(worker)
                now = now_ns()
                continue
            if self._parked and (gate.open or not self._dry):  # this one may be long
                self._wake_one()
            first = messages[0]
            worker.messages = messages
            worker.threaded = plain is None and calls.threaded(first)
            if first.recorded:
                for message in messages:
                    message.started = message.alive_at = message.ran_to = now
            self._busy += 1
            try:
                # The lease is looked at once more: the process may have been stopped since `now`.
                if plain is not None and not first._queue.pushed and now_ns() < calls.trusted_until:  # noqa: SLF001
                    await plain(first)
                else:
                    await calls.run(messages)
            except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the node
                self._ended_badly(worker, error)
                now = now_ns()
            else:
                now = now_ns()
                if len(messages) > 1 or first.recorded or first.given_up:
                    self._ended_well(worker, messages, now)
                else:  # (the same, without the price of its call and its loop)
                    self._done(first, now)
                    times.ended(first, now)
                    done(first._queue, now, now - first.started)  # noqa: SLF001
            finally:
                self._busy -= 1
                self._dry = False
                worker.messages = NOTHING
            if task.cancelling() and not self._may_cancel():
                return  # the handler cancelled the task: the next one's must not hear of it

    def _thread_given_up(self, message: Message, error: BaseException) -> None:
        """The attempt has failed, though its thread runs on: what becomes of the message is its copy's matter."""
        self._failed(message, error)
        self._gate.left(message)

    def _ended_well(self, worker: Worker, messages: list[Message], now: int) -> None:
        for message in messages:
            if message.recorded and not (message.given_up and worker.threaded):  # it left when it was given up
                self._gate.left(message)
            if message.given_up:
                self._ended_late(worker, message, now)
            else:
                self._done(message, now)
        self._times.batch_ended(messages, now)
        first = messages[0]
        self._scheduler.done(first.queue, now, now - first.started, len(messages))

    def _ended_late(self, worker: Worker, message: Message, now: int) -> None:
        """It had been given up; its failure was told if it runs in a thread."""
        if not worker.threaded:  # it was cancelled, and went on to its end all the same
            if worker.task is not None and worker.task.cancelling():
                worker.task.uncancel()
            self._done(message, now)

    def _ended_badly(self, worker: Worker, error: BaseException) -> None:
        task = worker.task
        given_up = any(message.given_up for message in worker.messages)
        if given_up and task is not None and not self._stopping:
            while task.cancelling():  # also where the handler made another error of it
                task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            if not given_up:
                if task is not None and task.cancelling() and self._may_cancel():
                    raise error  # the drain ran out of time: what it worked on stays unsettled
                error = RuntimeError("the handler was cancelled from within")
            else:
                error = HandlerTimedOut()
        elif not is_of_handler(error, task, stopping=self._stopping):
            raise error
        now = now_ns()
        for message in worker.messages:
            self._tell(worker, message, error)
            if message.recorded and not (message.given_up and worker.threaded):
                self._gate.left(message)  # after `_tell`, because a fallback may follow
        if not isinstance(error, Untrusted):  # its handler wasn't started
            self._times.batch_ended(worker.messages, now)
        first = worker.messages[0]
        self._scheduler.done(first.queue, now, now - first.started, len(worker.messages))

    def _tell(self, worker: Worker, message: Message, error: BaseException) -> None:
        fork_guard.end_child()
        error = well_formed(error)
        if isinstance(error, Untrusted):
            self._returned(message)
        elif message.given_up and worker.threaded:
            pass  # its failure was told when it was given up
        elif isinstance(error, Pause):
            self._paused(message, error)
        else:
            self._failed(message, error)

    # ---- turns of the loop

    async def _yield(self, worker: Worker, late: int) -> None:
        """One worker goes on in the next turn, and wakes others if there is work for them; the rest park. After a block
        it lets some turns pass first: one reads the bytes that arrived meanwhile, a later one adds their messages to
        the queues. Otherwise the next handler that blocks would start before all of these.
        """
        if self._slice_due:
            await self._park(worker)
            return
        self._slice_due = True
        if now_ns() - self._silence.looked_at > _LONG_BLOCK:  # feeds have to ask the server for more, too
            asyncio.get_running_loop().call_later(_PAUSE_AFTER_LONG_S, self._after_pause)
            await self._park(worker)
            return
        turns = _TURNS_AFTER_BLOCK if late > _BLOCK else 1
        asyncio.get_running_loop().call_soon(self._new_slice, turns)
        for _ in range(turns):
            await asyncio.sleep(0)

    def _after_pause(self) -> None:
        self._new_slice(1)
        self.wake()

    def _new_slice(self, turns: int) -> None:
        """Begin a slice after this many turns."""
        if turns > 1:
            asyncio.get_running_loop().call_soon(self._new_slice, turns - 1)
            return
        self._slice_due = False
        self._slice_end = now_ns() + _SLICE

    async def _park(self, worker: Worker) -> None:
        parked = worker.parked = asyncio.get_running_loop().create_future()
        self._parked.append(worker)
        try:
            await parked
        except asyncio.CancelledError:  # nobody must wait for it to wake the next one
            if worker in self._parked:
                self._parked.remove(worker)
            raise
        finally:
            worker.parked = None
            self._waking = False
        if not self._slice_due:
            self._slice_end = now_ns() + _SLICE


def _void(messages: list[Message]) -> bool:
    """Whether any is of a lane that was handed over or replaced since it was chosen."""
    return any(message.generation != message.lane.generation for message in messages)
