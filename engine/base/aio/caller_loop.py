"""Runs coroutines for threads without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.aio.loop_thread import cancel_others, serve

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

T = TypeVar("T")
_STOP_S = 2.0


class CallerLoop:
    """A daemon thread with an event loop, for any number of calling threads. It runs from the start until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=serve, args=(self._loop,), name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` and return its result. An interrupt of the wait, such as KeyboardInterrupt, cancels it. Raises
        TimeoutError after `timeout_s` seconds.
        """
        running = self.submit(work)
        try:
            return running.result(timeout_s)
        except BaseException:
            running.cancel()
            raise

    def stop(self) -> None:
        """Cancel all tasks and end the thread. Waits at most some seconds, for code that doesn't end."""
        with contextlib.suppress(TimeoutError, RuntimeError):  # the loop has already been stopped
            self.run(cancel_others(), _STOP_S)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self._loop.close()
