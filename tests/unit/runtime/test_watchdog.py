"""The watchdog ends a process whose handler keeps the interpreter lock."""

import asyncio
import subprocess
import sys
import textwrap

from evenlane.engine.runtime.watchdog import Watchdog

_PROGRAM = """\
import asyncio, ctypes
from evenlane.engine.runtime.watchdog import Watchdog

async def main():
    with Watchdog(3, 0):  # longer than the machine may pause before the call
        await asyncio.sleep(0.1)
        ctypes.PyDLL(None).sleep(60)  # keeps the lock: no other thread runs

asyncio.run(main())
"""


def test_process_that_holds_the_interpreter_lock_is_ended_with_its_stacks():
    """F1: no thread of the process can end it or report the handler."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)], capture_output=True, text=True, timeout=50, check=False
    )
    assert 1 == ended.returncode
    assert "in main" in ended.stderr


async def test_watchdog_without_limit_or_after_its_end_does_nothing():
    """F1: `block_limit` 0."""
    with Watchdog(0):
        await asyncio.sleep(0)
    with Watchdog(3600):
        await asyncio.sleep(0)
