"""The thread of one message whose layers are partly async and partly plain.

All plain layers run in this one thread, which the worker pool has given to the message: so no layer waits for a second
thread, and the pool's rules for threads hold for all of them. While an async layer runs in the event loop, the thread
waits for its end, and meanwhile runs the plain layers inside it. (asgiref's `CurrentThreadExecutor` works alike.)
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base.handled import HOLDER
from evenlane.engine.core.message.error_text import describe_error
from evenlane.engine.node.handlers import threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Context

_THREAD: ContextVar[MessageThread] = ContextVar("evenlane thread")


def with_thread(call: Callable[[Any], Any], loop: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[Any], Any]:
    """Return a plain function that runs `call` and makes the calling thread the message's thread. `loop()` is the event
    loop of its async layers.
    """

    def call_with_thread(given: Any) -> Any:
        thread = MessageThread(loop())
        token = _THREAD.set(thread)
        try:
            return call(given)
        finally:
            _THREAD.reset(token)
            thread.close()

    return call_with_thread


def from_thread(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
    """Return a plain function that runs an async layer in the event loop, and waits for its result."""
    return lambda given: _THREAD.get().wait_for(call, given)


def from_loop(call: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return an async function that runs a plain layer in the message's thread."""
    return lambda given: _THREAD.get().run(call, given)


class _Work(NamedTuple):
    """A plain layer to run."""

    call: Callable[[Any], Any]
    given: Any
    context: Context
    ended: asyncio.Future[Any]


class MessageThread:
    """Runs plain layers, and waits for async ones.

    Invariants: the thread waits in `wait_for` while an async layer runs. `_work` has the calls that it makes meanwhile,
    and None to have it look whether that layer has ended. `_layers` has the tasks of the async layers that run, and the
    futures of plain ones, the innermost at the end. If that is a task, the message's worker has it, to cancel it; a
    plain layer can't be cancelled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._worker = loop, HOLDER.get()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._layers: list[asyncio.Future[Any]] = []
        self._is_closed = False

    def wait_for(self, call: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
        """Run an async layer in the event loop, and return its result. Called in the message's thread."""
        tasks: list[asyncio.Task[Any]] = []
        self._loop.call_soon_threadsafe(self._begin, call, given, tasks, context=copy_context())
        while not tasks or not tasks[0].done():
            work = self._work.get()
            if work is not None:
                self._do(work)
        return tasks[0].result()

    async def run(self, call: Callable[[Any], Any], given: Any) -> Any:
        """Run a plain layer in the message's thread, which waits for the calling task. If that is cancelled, the layer
        runs to its end all the same. Raises RuntimeError after the end of the outermost layer.
        """
        ended: asyncio.Future[Any] = self._loop.create_future()
        threads.note_waiting(self._loop, -1)
        self._enter(ended)
        self._work.put(_Work(call, given, copy_context(), ended))
        if self._is_closed:
            self._refuse_work()
        return await ended

    def close(self) -> None:
        """End it. Called in the message's thread."""
        self._is_closed = True
        self._refuse_work()

    # ---- in the event loop

    def _begin(self, call: Callable[[Any], Awaitable[Any]], given: Any, tasks: list[asyncio.Task[Any]]) -> None:
        threads.note_waiting(self._loop, 1)
        task = self._loop.create_task(_await(call, given), name="async layer")
        task.add_done_callback(self._end)
        self._enter(task)
        tasks.append(task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        threads.note_waiting(self._loop, -1)
        self._leave(task)
        self._work.put(None)

    def _enter(self, layer: asyncio.Future[Any]) -> None:
        self._layers.append(layer)
        self._note_awaited()

    def _leave(self, layer: asyncio.Future[Any]) -> None:
        self._layers.remove(layer)
        self._note_awaited()

    def _note_awaited(self) -> None:
        if self._worker is not None:
            innermost = self._layers[-1] if self._layers else None
            self._worker.awaited = innermost if isinstance(innermost, asyncio.Task) else None

    def _finish(self, ended: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        threads.note_waiting(self._loop, 1)
        self._leave(ended)
        if ended.done():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    # ---- in the thread

    def _do(self, work: _Work) -> None:
        if work.ended.cancelled():
            self._report(work.ended)
            return
        try:
            result = work.context.run(work.call, work.given)
        except BaseException as error:  # noqa: BLE001 - the future carries it to the async layer
            self._report(work.ended, error=_portable(error))
        else:
            self._report(work.ended, result)

    def _refuse_work(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                if (work := self._work.get_nowait()) is not None:
                    self._report(work.ended, error=RuntimeError("the message's handling has ended already"))

    def _report(self, ended: asyncio.Future[Any], result: Any = None, error: BaseException | None = None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the async layer
            self._loop.call_soon_threadsafe(self._finish, ended, result, error)


async def _await(call: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    try:
        return await call(given)
    except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
        raise RuntimeError(f"the handler raised {describe_error(error)}") from error


def _portable(error: BaseException) -> BaseException:
    """The error, or another one in place of an error that a future can't carry."""
    if not isinstance(error, StopIteration):
        return error
    other = RuntimeError(f"the handler raised {describe_error(error)}")
    other.__cause__ = error
    return other
