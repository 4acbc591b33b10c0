"""Makes a cancellation reach its task, even if a callee swallows it or the task waits for another task's end.

A task is cancelled once, for example by Ctrl-C, and then awaited. If it misses the cancellation, the wait never ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def cancellable(work: Awaitable[T]) -> T:
    """Return the result of `work`. Raises CancelledError if this task was cancelled meanwhile, whatever the result.

    For calls of nats-py, which is built on `asyncio.wait_for`: before Python 3.12, `wait_for` loses a cancellation if
    the result arrives at the same moment, and returns the result (gh-86296).
    """
    before = count_cancellations()
    try:
        result = await work
    except Exception as error:
        if count_cancellations() > before:
            raise asyncio.CancelledError from error
        raise
    if count_cancellations() > before:
        raise asyncio.CancelledError
    return result


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel `task` and wait for its end. Raises its error, if any, or CancelledError if the waiting task was
    cancelled. A caller that suppressed the CancelledError of an awaited `task` would suppress that one, too.
    """
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


def count_cancellations() -> int:
    """Return the number of cancellations of this task."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
