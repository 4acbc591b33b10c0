"""Culprit: the line of the user's code that blocks the event loop, and its task."""

import asyncio
import re
import textwrap
import threading
import time
from pathlib import Path

from evenlane.engine.node.handlers.invoke import plainly
from evenlane.engine.runtime.loop_watch import culprit


def observed(call):
    """Return what another thread sees while `call` runs in an event loop. It gets a function that blocks until then."""
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

        observer = threading.Thread(target=look, name="observer")
        observer.start()
        task = asyncio.create_task(call(block))
        await task
        observer.join()
        return task

    task = asyncio.run(main())
    ((found, stacks),) = seen
    assert found.task is task
    assert {"MainThread", "observer"} <= stacks.keys()
    return found


def handler_of(tmp_path, name, text):
    """Return the function `handle` of a user's file."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["handle"]


def test_users_line_that_calls_a_library_is_named(tmp_path, monkeypatch):
    """F1: not the library's line, and relative to the folder where the node was started."""
    monkeypatch.chdir(tmp_path)
    handle = handler_of(
        tmp_path, "jobs.py", """\
        import re

        def helper(block):
            re.sub("x", lambda _: str(block()), "x")

        async def handle(block):
            helper(block)
        """,
    )  # fmt: skip
    found = observed(handle)
    assert re.search(r'jobs\.py", line 7, in handle\n.*\n? *File ".*jobs\.py", line 4, in helper', found.stack)
    # The function that blocks is in this file, and thus the user's own.
    assert found.where.endswith(f"test_culprit.py:{_line_of('assert release.wait(30)')}")


def test_frames_of_evenlane_are_not_the_users():
    """F1: a handler that calls Evenlane is blamed for its own line."""

    async def handle(block):
        plainly(lambda _: block(), None)

    found = observed(handle)
    assert found.where.endswith(f"test_culprit.py:{_line_of('assert release.wait(30)')}")


def test_deep_recursion_shows_its_innermost_frames():
    """F1: the length of a log line is bounded."""

    async def handle(block):
        def deeper(left):
            return block() if not left else deeper(left - 1)

        deeper(200)

    found = observed(handle)
    assert found.stack.count("in deeper") < 30
    assert "in block" in found.stack


def test_ended_thread_has_no_culprit():
    assert None is culprit.find(asyncio.new_event_loop(), 1)


def test_sleep_in_the_loop_is_named_by_its_line(tmp_path, monkeypatch):
    """F1: time.sleep has no frame of its own."""
    monkeypatch.chdir(tmp_path)
    handle = handler_of(
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

        observer = threading.Thread(target=look, daemon=True)
        observer.start()
        while observer.is_alive():
            await handle(0.2)

    asyncio.run(main())
    assert "shop.py:4" == seen[-1].where


def _line_of(text):
    with Path(__file__).open() as source:
        return next(number for number, line in enumerate(source, 1) if line.strip() == text)
