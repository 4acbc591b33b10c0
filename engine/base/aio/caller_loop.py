"""Runs coroutines for threads without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.aio.late_threads import LateThreads
from evenlane.engine.base.aio.loop_thread import cancel_others, serve

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")
_STOP_S = 2.0


class CallerLoop:
    """A daemon thread with an event loop, for any number of calling threads. It runs from the start until `stop`.

    Invariant: after `_is_stopping` is set, under `_lock`, no work begins: nobody would complete it. The lock is
    reentrant because a signal's handler may call while its thread holds it.
    """

    def __init__(self, name: str) -> None:
        self._lock, self._is_stopping = threading.RLock(), False
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LateThreads())
        self._thread = threading.Thread(target=serve, args=(self._loop,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the loop's own, which can't wait for itself."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work`. Raises CancelledError after `stop`."""
        with self._lock:
            if not self._is_stopping:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise CancelledError

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` and return its result. An interrupt of the wait, such as KeyboardInterrupt, cancels it. Raises
        TimeoutError after `timeout_s` seconds, and CancelledError if `stop` ends it.
        """
        running = self.submit(work)
        try:
            return running.result(timeout_s)
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        """Cancel all tasks and end the thread. Waits at most some seconds, for code that doesn't end."""
        with self._lock:
            if self._is_stopping:
                return
            last = self.submit(cancel_others())
            self._is_stopping = True
        with contextlib.suppress(TimeoutError, CancelledError):
            last.result(_STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self._loop.close()
