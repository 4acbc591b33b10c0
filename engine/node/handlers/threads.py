"""Threads for plain handlers. They aren't a ThreadPoolExecutor, because Python waits for its threads at exit, and a
handler that hangs must not keep a node from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from evenlane.engine.node.handlers import fork_guard

if TYPE_CHECKING:
    from collections.abc import Callable


class _Call(NamedTuple):
    call: Callable[[], object]
    ended: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class Threads:
    """At most `most` daemon threads, started on demand.

    Invariant: `running` is the number of calls whose end `loop`, the event loop of the callers, hasn't seen yet.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.running = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        _pools.add(self)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def run(self, call: Callable[[], object]) -> asyncio.Future[None]:
        """Call `call` in a thread; the future takes its result. Cancelling the future ends the wait, not the thread."""
        loop = self.loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._start()
        self.running += 1
        self._calls.put(_Call(call, ended, loop))
        return ended

    def _start(self) -> None:
        """Start one more thread, if the system allows it. Raises RuntimeError if there is no thread at all then."""
        thread = threading.Thread(target=self._serve, name=f"handler {self._started + 1}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            if not self._started:
                raise
            return
        self._started += 1

    def close(self) -> None:
        """Let each thread end after its current call."""
        for _ in range(self._started):
            self._calls.put(None)

    def _serve(self) -> None:
        while (given := self._calls.get()) is not None:
            error: BaseException | None = None
            if not given.ended.cancelled():
                try:
                    given.call()
                except BaseException as raised:  # noqa: BLE001 - the future carries it to the caller
                    error = raised
            fork_guard.end_child()
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the caller
                given.loop.call_soon_threadsafe(self._finish, given.ended, error)
            self._idle.release()

    def _finish(self, ended: asyncio.Future[None], error: BaseException | None) -> None:
        self.running -= 1
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)


_pools: WeakSet[Threads] = WeakSet()
_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


def count_running(loop: asyncio.AbstractEventLoop) -> int:
    """The number of calls of this event loop that run in threads, or wait for one. A thread that waits for something in
    the loop itself doesn't count.
    """
    return sum(pool.running for pool in _pools if pool.loop is loop) - _waiting.get(loop, 0)


def note_waiting(loop: asyncio.AbstractEventLoop, by: int) -> None:
    """Count threads that begin to wait for something in the loop, or that no longer do. Called in the loop."""
    _waiting[loop] = _waiting.get(loop, 0) + by
