"""Tests of the stacks of a child process that doesn't end."""

import subprocess
import sys

import pytest

from tests.support.stacks import LISTEN, end_of

_DEAF = """
import asyncio

async def deaf():
    asyncio.get_running_loop().call_soon(lambda: print("here", flush=True))  # once it sleeps
    await asyncio.sleep(60)

asyncio.run(deaf())
"""


def test_hanging_process_shows_its_stacks():
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN + _DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert "here\n" == process.stdout.readline()
        with pytest.raises(AssertionError) as failure:
            end_of(process, 0.1)
        for part in ("Current thread", "task Task-1, cancelled 0 times, is at", " deaf\n", " sleep\n"):
            assert part in str(failure.value)
        assert 1 == process.returncode


def test_ended_process_returns_its_output():
    process = subprocess.Popen(
        [sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert ("7\n", "") == end_of(process, 30)
