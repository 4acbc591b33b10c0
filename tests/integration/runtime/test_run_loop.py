"""A command ends although a task of it ignores its cancellation (X9: a handler may do so)."""

import asyncio
import subprocess
import sys

import pytest

from evenlane.engine.runtime.run_loop import run_loop
from tests.support.stacks import LISTEN, end_of

_PROGRAM = """
import asyncio, signal, sys
from evenlane.engine.cli.main import ended
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
sys.exit(ended(lambda: run_loop(work(sys.argv[1])), debug=False))
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
def test_it_ends_in_its_own_way_and_says_that_something_is_left(end, code, out, text):
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN + _PROGRAM, end], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert (out, _LEAVING + text) == end_of(process, 20)
    assert code == process.returncode


def test_the_work_itself_ends_in_order_however_long_that_takes_when_an_error_breaks_the_loop():
    ended = []

    async def work():
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1.2)  # longer than anything else is waited for
            ended.append("in order")

    with pytest.raises(SystemExit):
        run_loop(work())
    assert ["in order"] == ended


def test_a_result_is_given_and_what_still_runs_is_cancelled():
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
