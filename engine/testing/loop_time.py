"""Controls the time of an asyncio event loop. The only module of the test kit that knows the inside of asyncio, which
is the same from Python 3.11 to 3.13.
"""

from __future__ import annotations

import asyncio
from heapq import heapify
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PARTS = ("_ready", "_scheduled", "_selector", "_process_events", "_clock_resolution")


def running_loop() -> Any:
    """Return the running loop. Raises ConfigError unless it is asyncio's own, whose time can be controlled."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError("TestApp needs asyncio, and no event loop of asyncio is running") from None
    if not isinstance(loop, asyncio.BaseEventLoop) or not all(hasattr(loop, part) for part in _PARTS):
        kind = f"{type(loop).__module__}.{type(loop).__qualname__}"
        raise ConfigError(
            f"TestApp needs the event loop of asyncio itself, and this one is a {kind}: run the test with asyncio's"
            " default event loop policy"
        )
    return loop


class LoopTime:
    """The time of a loop, between `begin` and `end`. `time` returns it (s).

    Invariant: between `begin` and `end`, the loop's timers are those that were set since `begin`; `_outer` has the
    others, which wait meanwhile.
    """

    def __init__(self, loop: Any, time: Callable[[], float]) -> None:
        self._loop, self._time = loop, time
        self._outer: list[asyncio.TimerHandle] = []
        self._sockets: frozenset[int] = frozenset()
        self._calls = 0

    def begin(self) -> None:
        loop = self._loop
        self._outer, loop._scheduled = loop._scheduled, []
        self._sockets = frozenset(loop._selector.get_map())
        in_executor = loop.run_in_executor

        def run_in_executor(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
            future = in_executor(executor, function, *args)
            self._calls += 1
            future.add_done_callback(self._on_call_end)
            return future

        loop.time, loop.run_in_executor = self._time, run_in_executor

    def end(self) -> None:
        """Restore the loop. Timers that were set meanwhile go on, with the time that was left to them."""
        loop = self._loop
        then = loop.time()
        del loop.time, loop.run_in_executor
        passed = loop.time() - then
        left = [timer for timer in loop._scheduled if not timer.cancelled()]
        for timer in left:
            timer._when += passed
        loop._scheduled = [*self._outer, *left]
        heapify(loop._scheduled)

    def _on_call_end(self, _future: object) -> None:
        self._calls -= 1

    @property
    def has_ready(self) -> bool:
        """Whether a callback is about to run, besides the one that asks."""
        return bool(self._loop._ready)

    @property
    def has_calls(self) -> bool:
        """Whether calls in executors are under way (`asyncio.to_thread`)."""
        return self._calls > 0

    @property
    def has_sockets(self) -> bool:
        """Whether the loop watches sockets that it did not watch before."""
        return not self._sockets.issuperset(self._loop._selector.get_map())

    def wait_for_events(self, seconds: float) -> None:
        """Block, for at most so many real seconds, until a thread or a socket has something for the loop. Use it only
        while nothing is ready: the loop's own wait ends at its timers, which stand still.
        """
        self._loop._process_events(self._loop._selector.select(seconds))

    def next_timer(self, sleeping: Iterable[asyncio.Task[Any]] = ()) -> float | None:
        """Return the time of the next timer (s); None if there is none. Timers are left out whose only effect is that
        one of these tasks goes on: by `asyncio.sleep` or `asyncio.timeout`.
        """
        tasks: set[Any] = {task for task in sleeping if not task.done()}
        futures = {task._fut_waiter for task in tasks}
        return min(
            (timer._when for timer in self._loop._scheduled if not _is_left_out(timer, futures, tasks)), default=None
        )


def _is_left_out(timer: Any, futures: set[Any], tasks: set[Any]) -> bool:
    if timer._cancelled:
        return True
    if not tasks:
        return False
    if timer._args:
        first = timer._args[0]
        return asyncio.isfuture(first) and first in futures
    owner: Any = getattr(timer._callback, "__self__", None)
    return isinstance(owner, asyncio.Timeout) and getattr(owner, "_task", None) in tasks
