"""Runs the lease in an event loop and thread of its own, so that a handler that blocks the node's event loop doesn't
end the lease. A simulation, with its single virtual clock, runs it in the node's loop.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Runner(Protocol):
    """Runs coroutines for the node's event loop, and calls back into it."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. Cancelling the wait cancels it."""
        ...

    def notify(self, callback: Callable[..., object], *args: object) -> None:
        """Call back in the node's event loop, in the order of the calls."""
        ...

    def call(self, callback: Callable[..., object]) -> None:
        """Call `callback` in the loop that runs the coroutines, from the node's event loop."""
        ...

    async def close(self) -> None: ...


class SameLoop:
    """A runner without a thread: everything runs in the caller's loop."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    def notify(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    def call(self, callback: Callable[..., object]) -> None:
        callback()

    async def close(self) -> None:
        pass


class LoopThread:
    """A daemon thread with an event loop, started by the first `run`, which must come from the node's event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node_loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._ensure_loop()))

    def notify(self, callback: Callable[..., object], *args: object) -> None:
        """Call back from the thread. No effect after the end of the node's loop."""
        if self._node_loop is not None and not self._node_loop.is_closed():
            self._node_loop.call_soon_threadsafe(callback, *args)

    def call(self, callback: Callable[..., object]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(callback)

    async def close(self) -> None:
        """Cancel the thread's tasks and end it. No effect if nothing was ever run."""
        if self._loop is None or self._thread is None:
            return
        await self.run(cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()
        self._loop = self._thread = None

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._node_loop = asyncio.get_running_loop()
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        return self._loop


def serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop in this thread until it is stopped."""
    # Signals are for the main thread, which would not wake up if this thread received them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def cancel_others() -> None:
    """Cancel all other tasks of this loop, and wait for their end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
