"""Handle: W workers, each a task that takes the next message and runs the handler on it.

A worker awaits the handler in its own task: a handler that never blocks costs a function call, not a task. Idle
workers are parked and woken one at a time. Workers share each turn of the event loop in slices of some
milliseconds, so that handlers which never block don't keep the loop from reading.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from engine.clock import now_ns
from engine.node.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.lane import Lane
    from engine.message import Message
    from engine.node.handlers import Handler

_log = structlog.get_logger(__name__)

_SLICE = 5_000_000  # ns; handling what is at hand before reading more keeps memory warm and small
_SWEEP_S = 0.1
_NEVER = 1 << 62


class NoSignOfLife(Exception):
    """The handler ran for longer than ack_wait without a sign of life; the message is given out again."""


class Untrusted(Exception):
    """The lease was over in the very moment before the handler's start; the message wasn't touched."""


class _Worker:
    """`messages` is what it works on now."""

    __slots__ = ("messages", "parked", "task")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.task: asyncio.Task[None] | None = None
        self.parked: asyncio.Future[None] | None = None


class Workers:
    """`take(now)` names the next message or None, `more(message, now)` another of the same queue or None,
    `done` and `failed` are told how each one ended; `ended(message, now, count)` that its slot is free, which it had
    to itself or with others of its queue; `returned` gets one back whose handler wasn't started.
    """

    def __init__(
        self,
        handler: Handler,
        count: int,
        take: Callable[[int], Message | None],
        more: Callable[[Message, int], Message | None],
        done: Callable[[Message, int], None],
        failed: Callable[[Message, BaseException], None],
        ended: Callable[[Message, int, int], None],
        on_hung: Callable[[int], None],
        returned: Callable[[Message], None],
    ) -> None:
        self.handler, self._count = handler, count
        self._take, self._more, self._done, self._failed, self._ended = take, more, done, failed, ended
        self._on_hung, self._returned = on_hung, returned
        self.trusted_until = _NEVER
        """Until when (monotonic ns) handlers may start."""
        self._workers = [_Worker() for _ in range(count)]
        self._parked: list[_Worker] = []
        self._waking = False
        self._stopping = False
        self._slice_end = 0
        self._slice_due = False
        self._pool: Threads | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def running(self) -> list[Message]:
        """What is being handled now."""
        return [message for worker in self._workers for message in worker.messages]

    def running_of(self, lane: Lane) -> list[int]:
        """Its messages whose handlers' word is still to come: what a hung thread works on has failed already."""
        return [
            message.sequence
            for message in self.running
            if message.lane is lane
            and message.generation == lane.generation
            and not (message.given_up and not self.handler.is_async)
        ]

    def start(self) -> list[asyncio.Task[None]]:
        """The tasks that must run as long as the node does."""
        if not self.handler.is_async:
            self._pool = Threads(self._count)
        work = self._work_in_batches if self.handler.batch else self._work
        for number, worker in enumerate(self._workers):
            worker.task = asyncio.create_task(work(worker), name=f"worker {number}")
        self._sweeper = asyncio.create_task(self._sweep(), name="ack_wait")
        return [self._sweeper, *(worker.task for worker in self._workers if worker.task is not None)]

    def wake(self) -> None:
        """There may be something to do: one parked worker looks, and wakes the next if it finds something."""
        if self._parked and not self._waking and not self._stopping:
            self._waking = True
            parked = self._parked.pop().parked
            if parked is not None and not parked.done():
                parked.set_result(None)

    async def drain(self, deadline: float) -> int:
        """Start nothing more, wait until the loop's time `deadline` for what runs; how many had to be left."""
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
        stuck = len(self.running)
        for task in unfinished:
            task.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=0.5)
        if self._pool is not None:
            self._pool.close()
        return stuck

    # ---- one message at a time

    async def _work(self, worker: _Worker) -> None:
        call, run = self.handler.call, self._in_thread
        is_async, messages = self.handler.is_async, worker.messages
        while not self._stopping:
            now = now_ns()
            if now > self._slice_end:
                await self._yield(worker)
                continue
            message = self._take(now)
            if message is None:
                await self._park(worker)
                continue
            if self._parked:
                self.wake()
            messages.append(message)
            try:
                # Looked at once more: the process may have been stopped since `now`.
                if now_ns() >= self.trusted_until:
                    raise Untrusted  # noqa: TRY301 - as a handler that can't be started
                if is_async:
                    await call(message)
                else:
                    await run(call, message, messages)
            except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the node
                self._ended_badly(worker, error)
            else:
                now = now_ns()
                self._ended_well(worker, message, now)
                self._ended(message, now, 1)
            finally:
                messages.clear()

    # ---- many at a time, of one queue and so of one project

    async def _work_in_batches(self, worker: _Worker) -> None:
        call, most = self.handler.call, self.handler.batch or 1
        messages = worker.messages
        while not self._stopping:
            now = now_ns()
            if now > self._slice_end:
                await self._yield(worker)
                continue
            message = self._take(now)
            if message is None:
                await self._park(worker)
                continue
            while message is not None:
                messages.append(message)
                message = self._more(message, now) if len(messages) < most else None
            self.wake()
            try:
                if now_ns() >= self.trusted_until:
                    raise Untrusted  # noqa: TRY301 - as above
                if self.handler.is_async:
                    await call(list(messages))
                else:
                    await self._in_thread(call, list(messages), messages)
            except BaseException as error:  # noqa: BLE001 - SystemExit of a handler must not end the node
                self._ended_badly(worker, error)
            else:
                now = now_ns()
                for message in messages:
                    self._ended_well(worker, message, now)
                self._ended(messages[0], now, len(messages))
            finally:
                messages.clear()

    def _ended_well(self, worker: _Worker, message: Message, now: int) -> None:
        if not message.given_up:
            self._done(message, now)
        elif self._pool is None:  # it was cancelled, and went on to its end all the same
            if worker.task is not None and worker.task.cancelling():
                worker.task.uncancel()
            self._done(message, now)

    def _ended_badly(self, worker: _Worker, error: BaseException) -> None:
        task = worker.task
        given_up = any(message.given_up for message in worker.messages)
        if given_up and task is not None and not self._stopping:
            while task.cancelling():  # also where the handler made another error of it
                task.uncancel()
        if isinstance(error, asyncio.CancelledError):
            if not given_up:
                if task is not None and task.cancelling():
                    raise error  # the drain ran out of time: what it worked on stays unsettled
                error = RuntimeError("the handler was cancelled from within")
            else:
                error = NoSignOfLife("no sign of life for longer than ack_wait")
        elif isinstance(error, KeyboardInterrupt | GeneratorExit):
            raise error
        now = now_ns()
        for message in worker.messages:
            if isinstance(error, Untrusted):
                self._returned(message)
            elif not (message.given_up and self._pool is not None):
                self._failed(message, error)
        self._ended(worker.messages[0], now, len(worker.messages))

    async def _in_thread(self, call: Callable[[Any], Any], argument: Any, _messages: list[Message]) -> None:
        """A thread can't be cancelled: one that is given up keeps its slot until it returns."""
        assert self._pool is not None
        await self._pool.run(partial(contextvars.copy_context().run, self._called, call, argument))

    def _called(self, call: Callable[[Any], Any], argument: Any) -> None:
        """In a thread. StopIteration can't cross a future, and SystemExit of a handler must not end the node."""
        if now_ns() >= self.trusted_until:
            raise Untrusted
        try:
            result = call(argument)
            if inspect.isawaitable(result) or inspect.isgenerator(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(f"the handler returned a {type(result).__name__} that nobody runs: make it `async def`")
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"the handler raised {type(error).__name__}: {error}") from error

    # ---- turns of the loop

    async def _yield(self, worker: _Worker) -> None:
        """One worker goes on in the next turn, and wakes others if there is work for them; the rest park."""
        if self._slice_due:
            await self._park(worker)
            return
        self._slice_due = True
        asyncio.get_running_loop().call_soon(self._new_slice)
        await asyncio.sleep(0)

    def _new_slice(self) -> None:
        self._slice_due = False
        self._slice_end = now_ns() + _SLICE

    async def _park(self, worker: _Worker) -> None:
        parked = worker.parked = asyncio.get_running_loop().create_future()
        self._parked.append(worker)
        try:
            await parked
        finally:
            worker.parked = None
            self._waking = False
        if not self._slice_due:
            self._slice_end = now_ns() + _SLICE

    # ---- ack_wait

    async def _sweep(self) -> None:
        last = now_ns()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = now_ns()
            late, last = now - last - 2 * int(_SWEEP_S * 1_000_000_000), now
            for worker in self._workers:
                if late > 0:  # the process stood still, or its loop did: that is no silence of a handler's
                    for message in worker.messages:
                        message.alive_at += late
                if worker.messages:
                    self._check(worker, now)

    def _check(self, worker: _Worker, now: int) -> None:
        first = worker.messages[0]
        alive_at = max(message.alive_at for message in worker.messages)
        if first.queue.ack_wait <= 0 or now - alive_at <= first.queue.ack_wait:
            return
        if self._pool is None:
            for message in worker.messages:
                message.given_up = True
            if worker.task is not None:
                worker.task.cancel()
                _log.warning("handler cancelled: no sign of life within ack_wait", message=repr(first))
            # a handler that swallows the cancellation gets another one only after ack_wait has passed again
            first.alive_at = now
        elif not first.given_up:
            _log.warning("handler thread given up: no sign of life within ack_wait", message=repr(first))
            for message in worker.messages:
                message.given_up = True
                self._failed(message, NoSignOfLife("no sign of life for longer than ack_wait"))
            self._on_hung(sum(1 for w in self._workers if w.messages and w.messages[0].given_up))
