"""Guards against handlers that fork. The child process has copies of the node's sockets and believes that it holds the
node's lease, so it must never continue as the node: it may run a program of its own, but ends where it would return to
the engine.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

_FAILED = 70
_WHY = b"evenlane: a handler forked, and its child came back to the node: the child ends\n"


class ForkListener(Protocol):
    """The part of a node that reacts to forks."""

    def on_fork(self) -> None:
        """Called in each forked child. Schedules a call of `end_child`, which ends the child."""


# Weak: a node whose event loop ended before the node was closed is freed.
_running: WeakSet[ForkListener] = WeakSet()
_forked = False  # whether this process was forked from one in which a node ran


def watch(listener: ForkListener) -> None:
    """Register a node that runs."""
    _running.add(listener)


def unwatch(listener: ForkListener) -> None:
    """Unregister a node that has ended."""
    _running.discard(listener)


def end_child() -> None:
    """End this process if a handler forked it."""
    if _forked:
        os.write(2, _WHY)
        os._exit(_FAILED)


def _in_child() -> None:
    global _forked  # noqa: PLW0603 - it is a fact about the process
    _forked = bool(_running)
    for listener in _running:
        listener.on_fork()
    _running.clear()


os.register_at_fork(after_in_child=_in_child)
