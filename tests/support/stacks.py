"""Stacks of a child process, for a test that has waited for its end in vain.

A hang that happens once in a hundred runs is seen once: the failure itself must show where.
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
"""The first line of a child's code, which makes it answer `ask`."""
_ANSWER_S = 30.0


def listen() -> None:
    """At SIGUSR1, print to stderr where each thread is and what each task awaits, and end."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _print_tasks())
    faulthandler.register(signal.SIGUSR1, chain=True)


def ask(process: subprocess.Popen[Any]) -> None:
    """Make a listening process print its stacks to stderr, and end."""
    process.send_signal(signal.SIGUSR1)


def end_of(process: subprocess.Popen[str], timeout: float) -> tuple[str, str]:
    """Return stdout and stderr once the process has ended by itself. A failure shows where it hangs."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        ask(process)
    try:
        process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        process.kill()
    raise AssertionError(f"after {timeout:g} s it still runs; its stacks:\n{process.communicate()[1]}")


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
    """The frames of a task, from the outermost to the awaited one."""
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
