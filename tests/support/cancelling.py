"""Cancels work at each of its awaits, also at the moment when the awaited result arrives: Ctrl-C can come at any time.

A caller cancels a task once and then waits for it: work that misses its cancellation keeps the process from ending.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

When = Literal["while it waits", "as it comes"]


class Cancelled:
    """An awaitable of `work`, whose task is cancelled at the await of this `number`, from 1."""

    def __init__(self, work: Coroutine[Any, Any, object], number: int, when: When) -> None:
        self._work, self._left, self._when = work, number, when

    @property
    def came(self) -> bool:
        """Whether that await was reached."""
        return self._left <= 0

    def __await__(self) -> Generator[Any, Any, object]:
        return self

    def __iter__(self) -> Cancelled:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._cancel(self._work.send(value))

    def throw(self, *error: Any) -> Any:
        return self._cancel(self._work.throw(*error))

    def close(self) -> None:
        self._work.close()

    def _cancel(self, awaited: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
        self._left -= 1
        if self._left == 0:
            task = asyncio.current_task()
            assert task is not None
            if awaited is not None and self._when == "as it comes":  # before the task itself is woken
                awaited.add_done_callback(lambda _: task.cancel())
            else:
                asyncio.get_running_loop().call_soon(task.cancel)
        return awaited


async def cancelled_anywhere(work: Callable[[], Coroutine[Any, Any, object]], when: When, within: float = 60.0) -> int:
    """Run `work` repeatedly, cancelled at each of its awaits in turn. Return the number of awaits. Fails if the work
    goes on instead, or if a task that it left behind survives its own cancellation.
    """
    number = 0
    while True:
        number += 1
        begun = Cancelled(work(), number, when)
        before = asyncio.all_tasks()

        async def run(begun: Cancelled = begun) -> None:
            await begun

        task = asyncio.create_task(run())
        await asyncio.wait({task}, timeout=within)
        assert task.done(), f"cancelled {when} at its await {number}, it goes on"
        if not begun.came:
            task.result()
            return number - 1
        assert task.cancelled(), f"cancelled {when} at its await {number}, it ended otherwise: {task}"
        await _end(asyncio.all_tasks() - before, within)


async def _end(left: set[asyncio.Task[Any]], within: float) -> None:
    """Cancel the tasks, as a loop does at its end."""
    for task in left:
        task.cancel()
    if left:
        _, still = await asyncio.wait(left, timeout=within)
        assert not still, f"left behind, and cancelled in vain: {still}"
