"""A process whose handler keeps the interpreter lock ends as well."""

import asyncio
import subprocess
import sys
import textwrap

from evenlane.engine.cli.run.watchdog import Watchdog

_PROGRAM = """\
import asyncio, ctypes
from evenlane.engine.cli.run.watchdog import Watchdog

async def main():
    with Watchdog(1, 0):
        await asyncio.sleep(0.1)
        ctypes.PyDLL(None).sleep(60)  # with the lock: no other thread runs

asyncio.run(main())
"""


def test_a_process_that_holds_the_interpreter_lock_is_ended_with_its_stacks():
    """F1: no thread of its own can end it, or say who it was."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)], capture_output=True, text=True, timeout=50, check=False
    )
    assert 1 == ended.returncode
    assert "in main" in ended.stderr


async def test_it_ends_nothing_without_a_limit_nor_after_its_end():
    """F1: `block_limit` 0."""
    with Watchdog(0):
        await asyncio.sleep(0)
    with Watchdog(3600):
        await asyncio.sleep(0)
