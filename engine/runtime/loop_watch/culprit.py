"""What blocks an event loop, found from another thread: the line of the user's code, the stack, and the task."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import evenlane

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

_OURS = (str(Path(evenlane.__file__).parent) + "/",)
_LIBRARIES = (
    *{sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    "<frozen ",
)
_MOST_FRAMES = 20


class Culprit(NamedTuple):
    """`where` is FILE:LINE of the innermost line that is the user's own, or of the innermost line at all; `stack` is
    the whole stack as a traceback shows it, `task` the task that runs, if one does.
    """

    where: str
    stack: str
    task: asyncio.Task[Any] | None


def find(loop: asyncio.AbstractEventLoop, thread: int) -> Culprit | None:
    """What `loop` does now, in the thread with this identifier; None if that is gone. From any thread."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the one way there is
    if frame is None:
        return None
    frames = [*_outermost_first(frame)]
    return Culprit(_where(frames), _formatted(frames), asyncio.current_task(loop))


def stacks() -> dict[str, str]:
    """What each thread of this process does now, by its name."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        threads.get(ident, str(ident)): _formatted([*_outermost_first(frame)])
        for ident, frame in sys._current_frames().items()  # noqa: SLF001
    }


def _formatted(frames: list[FrameType]) -> str:
    """As a traceback shows them; the innermost ones, if they are many."""
    shown = ((each, each.f_lineno) for each in frames[-_MOST_FRAMES:])
    return "".join(traceback.format_list(traceback.StackSummary.extract(shown))).rstrip()


def _outermost_first(frame: FrameType | None) -> Iterable[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return reversed(frames)


def _where(frames: list[FrameType]) -> str:
    """A library that the user calls isn't the place to look at, nor are we: the user's line that calls it is."""
    ours = [number for number, each in enumerate(frames) if _filename(each).startswith(_OURS)] or [0]
    own = [each for each in frames[ours[0] :] if not _filename(each).startswith((*_OURS, *_LIBRARIES))]
    inside = frames[ours[-1] + 1 :]  # an installed handler counts as a library
    found = own[-1] if own else inside[0] if inside else frames[-1]
    return f"{_shown(_filename(found))}:{found.f_lineno}"


def _filename(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _shown(filename: str) -> str:
    """Relative to the folder that the node was started in, if it lies there."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename
