"""Runs a command's event loop, which ends with the command, whatever tasks still run in it."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from evenlane.engine.base.garbage_collector import tune_gc

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_FAREWELL_S = 1.0


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on uvloop. Tasks that ignore their cancellation are abandoned: asyncio's own shutdown
    would wait forever for such a handler, whether `work` returned, failed, or was interrupted by Ctrl-C. Nor does it
    wait for calls that still run in threads: `exit_process` does.
    """
    tune_gc()
    main: set[asyncio.Task[Any]] = set()
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    runner.get_loop().set_default_executor(threads)
    returned = False
    try:
        result = runner.run(_run_noted(work, main))
        returned = True
    finally:
        if runner.get_loop().run_until_complete(_cancel_remaining(main)):
            print("evenlane: a handler ignores its cancellation: leaving without it", file=sys.stderr)  # noqa: T201
            if returned:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)
        else:
            threads.shutdown(wait=False, cancel_futures=True)
            runner.get_loop().set_default_executor(ThreadPoolExecutor())  # an idle one, which `close` waits for
            runner.close()
    return result


async def _run_noted(work: Coroutine[Any, Any, T], main: set[asyncio.Task[Any]]) -> T:
    if (task := asyncio.current_task()) is not None:
        main.add(task)
    return await work


async def _cancel_remaining(main: set[asyncio.Task[Any]]) -> bool:
    """Cancel the remaining tasks; return whether any of them doesn't end. If the loop itself raised an error, the work
    of `main` still runs, and is given all the time it needs to end in order.
    """
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if unended := others & main:
        await asyncio.wait(unended)
    others -= main
    return bool(others) and bool((await asyncio.wait(others, timeout=_FAREWELL_S))[1])
