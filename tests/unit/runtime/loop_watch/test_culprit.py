"""Which line of the user's code blocks the event loop, and in which task."""

import asyncio
import re
import textwrap
import threading
import time
from pathlib import Path

import pytest

from evenlane.engine.node.handlers.invoke import plainly
from evenlane.engine.runtime.loop_watch import culprit


def looked_at(call):
    """What another thread sees while `call`, given a function that blocks until then, runs in an event loop."""
    entered, seen, release = threading.Event(), [], threading.Event()

    def block():
        entered.set()
        assert release.wait(30)

    async def main():
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def look():
            assert entered.wait(30)
            seen.append((culprit.find(loop, thread), culprit.stacks()))
            release.set()

        looking = threading.Thread(target=look, name="looking")
        looking.start()
        task = asyncio.create_task(call(block))
        await task
        looking.join()
        return task

    task = asyncio.run(main())
    ((found, stacks),) = seen
    assert found.task is task
    assert {"MainThread", "looking"} <= stacks.keys()
    return found


def made(tmp_path, name, text):
    """The function `handle` of a file of the user's own."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["handle"]


def test_the_users_line_that_calls_a_library_is_named(tmp_path, monkeypatch):
    """F1: not the line of the library, and relative to the folder where the node was started."""
    monkeypatch.chdir(tmp_path)
    handle = made(
        tmp_path, "jobs.py", """\
        import re

        def helper(block):
            re.sub("x", lambda _: str(block()), "x")

        async def handle(block):
            helper(block)
        """,
    )  # fmt: skip
    found = looked_at(handle)
    assert re.search(r'jobs\.py", line 7, in handle\n.*\n? *File ".*jobs\.py", line 4, in helper', found.stack)
    # (the function that blocks is this file's, and so the user's own)
    assert found.where.endswith(f"test_culprit.py:{_line_of('assert release.wait(30)')}")


def test_what_we_call_in_between_is_not_the_users(tmp_path):
    """F1: a handler that hands work to Evenlane is blamed for the line that does."""

    async def handle(block):
        plainly(lambda _: block(), None)

    found = looked_at(handle)
    assert found.where.endswith(f"test_culprit.py:{_line_of('assert release.wait(30)')}")


def test_deep_recursion_shows_its_innermost_frames(tmp_path):
    """F1: a line of the log has an end."""

    async def handle(block):
        def deeper(left):
            return block() if not left else deeper(left - 1)

        deeper(200)

    found = looked_at(handle)
    assert found.stack.count("in deeper") < 30
    assert "in block" in found.stack


def test_a_thread_that_is_gone_has_no_culprit():
    assert None is culprit.find(asyncio.new_event_loop(), 1)


@pytest.mark.parametrize("seconds", [0.2])
def test_a_sleep_in_the_loop_is_named_by_its_own_line(tmp_path, monkeypatch, seconds):
    """F1: time.sleep has no frame of its own."""
    monkeypatch.chdir(tmp_path)
    handle = made(
        tmp_path, "shop.py", """\
        import time

        async def handle(seconds):
            time.sleep(seconds)
        """,
    )  # fmt: skip
    seen = []

    async def main():
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def look():
            while not seen or not seen[-1].where.startswith("shop.py"):
                seen.append(culprit.find(loop, thread))
                time.sleep(0.001)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        while looking.is_alive():
            await handle(seconds)

    asyncio.run(main())
    assert "shop.py:4" == seen[-1].where


def _line_of(text):
    with Path(__file__).open() as source:
        return next(number for number, line in enumerate(source, 1) if line.strip() == text)
