"""Cancellations that reach their task, whatever it waits for: a callee that passes over them, or a task's end.

A task is cancelled once, by Ctrl-C say, and then waited for. If it doesn't hear of it, it is waited for without end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def cancellable(work: Awaitable[T]) -> T:
    """The result of `work`; raises CancelledError if this task was cancelled meanwhile, whatever came of `work`.

    For calls of nats-py: before Python 3.12 `asyncio.wait_for`, which it is built on, gives what has come in the same
    instant and forgets that it was cancelled (gh-86296).
    """
    before = _cancellations()
    try:
        result = await work
    except Exception as error:
        if _cancellations() > before:
            raise asyncio.CancelledError from error
        raise
    if _cancellations() > before:
        raise asyncio.CancelledError
    return result


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel `task` and wait until it has ended. Raises its error, if it has one, or CancelledError if the waiting task
    was cancelled: to suppress that of an awaited `task` would suppress this one as well.
    """
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


def _cancellations() -> int:
    """How often this task was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
