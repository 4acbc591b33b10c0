"""What a child process is at, in its own words: for a test that has waited for its end in vain.

A hang that comes once in a hundred runs is seen once: the failure itself has to say where.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import subprocess
import sys
from typing import Any

LISTEN = "from tests.support.stacks import listen; listen()\n"
"""In front of the code of a child: then it answers `ask`."""
_ANSWER_S = 3.0


def listen() -> None:
    """At SIGUSR1 say on stderr where each thread is, and what each task of the event loop waits for; then end."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _print_tasks())
    faulthandler.register(signal.SIGUSR1, chain=True)


def ask(process: subprocess.Popen[Any]) -> None:
    """Have it say on its stderr where it is, and end, if it listens."""
    process.send_signal(signal.SIGUSR1)


def end_of(process: subprocess.Popen[str], timeout: float) -> tuple[str, str]:
    """Its stdout and stderr once it has ended by itself; a failure says where it hangs."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ask(process)
    try:
        process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        process.kill()
    raise AssertionError(f"after {timeout:g} s it still runs; it says:\n{process.communicate()[1]}")


def _print_tasks() -> None:
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        lines = ["no event loop runs"]
    else:
        lines = [line for task in tasks for line in _of_task(task)]
    sys.stderr.write("\n".join([*lines, ""]))
    sys.stderr.flush()
    os._exit(1)


def _of_task(task: asyncio.Task[Any]) -> list[str]:
    """The frames of a task, the outermost first, down to what it waits for."""
    lines, work = [f"task {task.get_name()}, cancelled {task.cancelling()} times, is at"], task.get_coro()
    while work is not None:
        frame = _first(work, "cr_frame", "gi_frame", "ag_frame")
        lines.append(
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else f"  {work!r}"
        )
        work = _first(work, "cr_await", "gi_yieldfrom", "ag_await")
    return lines


def _first(work: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(work, name, None)) is not None), None)
