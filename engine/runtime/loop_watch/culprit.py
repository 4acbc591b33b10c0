"""Finds the code that blocks an event loop, from another thread: the user's line, the stack, and the task."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

_OURS = (str(Path(__file__).parents[3]) + "/",)  # the package `evenlane`
_LIBRARIES = (
    *{sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<frozen ",
)
_MOST_FRAMES = 20


class Culprit(NamedTuple):
    """The code that blocks a loop. `where` is FILE:LINE of the innermost line of the user's code, or of the innermost
    line if there is none; `stack` is the whole stack in traceback format, `task` the running task, if any.
    """

    where: str
    stack: str
    task: asyncio.Task[Any] | None


def find(loop: asyncio.AbstractEventLoop, thread: int) -> Culprit | None:
    """Return the code that `loop` runs now in the thread with this id; None if the thread has ended. Thread-safe."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way
    if frame is None:
        return None
    frames = [*_outermost_first(frame)]
    return Culprit(_where(frames), _format(frames), asyncio.current_task(loop))


def stacks() -> dict[str, str]:
    """Return the present stack of each thread of this process, by thread name."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        threads.get(ident, str(ident)): _format([*_outermost_first(frame)])
        for ident, frame in sys._current_frames().items()  # noqa: SLF001
    }


def _format(frames: list[FrameType]) -> str:
    """Format frames like a traceback; only the innermost ones if there are many."""
    shown = ((each, each.f_lineno) for each in frames[-_MOST_FRAMES:])
    return "".join(traceback.format_list(traceback.StackSummary.extract(shown))).rstrip()


def _outermost_first(frame: FrameType | None) -> Iterable[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return reversed(frames)


def _where(frames: list[FrameType]) -> str:
    """Find the line to blame: the user's innermost line, rather than a library it calls or Evenlane's own code."""
    ours = [number for number, each in enumerate(frames) if _filename(each).startswith(_OURS)] or [0]
    own = [each for each in frames[ours[0] :] if not _filename(each).startswith((*_OURS, *_LIBRARIES))]
    inside = frames[ours[-1] + 1 :]  # an installed handler counts as a library
    found = own[-1] if own else inside[0] if inside else frames[-1]
    return f"{_shorten(_filename(found))}:{found.f_lineno}"


def _filename(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _shorten(filename: str) -> str:
    """Shorten to a path relative to the node's working directory, if the file is in it."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename
