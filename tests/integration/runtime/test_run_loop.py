"""A command ends although a task ignores its cancellation (X9: a handler may do so)."""

import asyncio
import subprocess
import sys

import pytest

from evenlane.engine.runtime.run_loop import run_loop
from tests.support.stacks import LISTEN, end_of

_PROGRAM = """
import asyncio, signal, sys
from evenlane.engine.cli.main import run_reported
from evenlane.engine.runtime.run_loop import run_loop
from evenlane.engine.errors import EvenlaneError

async def deaf():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def work(end):
    kept.append(asyncio.create_task(deaf()))
    await asyncio.sleep(0)
    if end == "fails":
        raise EvenlaneError("the node stops")
    if end == "is interrupted":
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(60)
    if end == "is left by an exit":
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(60)
    print("done")

kept = []
sys.exit(run_reported(lambda: run_loop(work(sys.argv[1])), debug=False))
"""
_LEAVING = "evenlane: a handler ignores its cancellation: leaving without it\n"


@pytest.mark.parametrize(
    ("end", "code", "out", "text"),
    [
        ("returns", 1, "done\n", ""),
        ("fails", 1, "", "evenlane: the node stops\n"),
        ("is interrupted", 130, "", "evenlane: interrupted\n"),
        ("is left by an exit", 3, "", ""),
    ],
)
def test_command_ends_and_reports_task_that_ignores_cancellation(end, code, out, text):
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN + _PROGRAM, end], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert (out, _LEAVING + text) == end_of(process, 60)
    assert code == process.returncode


def test_main_task_ends_in_order_when_loop_is_broken_off():
    ended = []

    async def work():
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1.2)  # longer than the loop waits for anything else
            ended.append("in order")

    with pytest.raises(SystemExit):
        run_loop(work())
    assert ["in order"] == ended


def test_result_is_returned_and_other_tasks_are_cancelled():
    received = []

    async def alongside():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            received.append("cancelled")

    async def work():
        received.append(asyncio.create_task(alongside()))
        await asyncio.sleep(0)
        return 7

    assert 7 == run_loop(work())
    assert "cancelled" == received[-1]
