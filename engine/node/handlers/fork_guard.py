"""Guards against handlers that fork. The child process has copies of the node's sockets and believes that it holds the
node's lease, so it must never continue as the node: it may run a program of its own, but ends where it would return to
the engine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_FAILED = 70
_WHY = b"evenlane: a handler forked, and its child came back to the node: the child ends\n"

_running: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}
_forked = False  # whether this process was forked from one in which a node ran


def watch(on_fork: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    """Register a node that runs in `loop`. `on_fork` is called in each forked child; from then on `end_child` ends that
    child.
    """
    _running[on_fork] = loop


def unwatch(on_fork: Callable[[], None]) -> None:
    """Unregister a node that has ended."""
    _running.pop(on_fork, None)


def end_child() -> None:
    """End this process if a handler forked it."""
    if _forked:
        os.write(2, _WHY)
        os._exit(_FAILED)


def _in_child() -> None:
    global _forked  # noqa: PLW0603 - it is a fact about the process
    _forked = bool(_running)
    for on_fork, loop in _running.items():
        on_fork()
        loop.call_soon(end_child)
    _running.clear()


os.register_at_fork(after_in_child=_in_child)
