"""The event loop of a command: it ends with the command, whatever else goes on in it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from evenlane.engine.base.garbage_collector import tune_gc

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_FAREWELL_S = 1.0


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on uvloop. What goes on after that, against its cancellation, is left behind:
    asyncio's own ending would wait for ever for a handler that ignores its cancellation, whether `work` returned,
    failed, or was ended by Ctrl-C.
    """
    tune_gc()
    main: set[asyncio.Task[Any]] = set()
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    returned = False
    try:
        result = runner.run(_noted(work, main))
        returned = True
    finally:
        if runner.get_loop().run_until_complete(_is_ignored(main)):
            print("evenlane: a handler ignores its cancellation: leaving without it", file=sys.stderr)  # noqa: T201
            if returned:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)
        else:
            runner.close()
    return result


async def _noted(work: Coroutine[Any, Any, T], main: set[asyncio.Task[Any]]) -> T:
    if (task := asyncio.current_task()) is not None:
        main.add(task)
    return await work


async def _is_ignored(main: set[asyncio.Task[Any]]) -> bool:
    """Cancel what goes on; whether any of it doesn't end. If an error has come out of the loop itself, the work of
    `main` goes on, too: that has a time of its own to end in order.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if unended := others & main:
        await asyncio.wait(unended)
    others -= main
    return bool(others) and bool((await asyncio.wait(others, timeout=_FAREWELL_S))[1])
