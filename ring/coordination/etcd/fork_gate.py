"""Closes a process's connections to etcd before it forks.

A child hangs or dies if its parent had a gRPC connection at the fork: gRPC's threads are missing there, and its locks
are in any state. Without connections gRPC ends its threads, and then works in both processes.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = Path("/proc/self/task")
_OF_GRPC = ("event_engine", "grpc_", "lifeguard")
_QUIET_S = 1.0  # at most, until gRPC's threads have ended
_LOOK_EVERY_S = 0.002
_COLLECT_EVERY = 25  # looks


class ForkGate:
    """Guards the connections of one client. Enter it to connect; it's held during a fork.

    Each callback in `on_fork` closes a connection, on the thread that forks. The client connects again afterwards.
    """

    def __init__(self) -> None:
        self.on_fork: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        _gates.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        global _is_loud  # noqa: PLW0603
        _is_loud = True
        self.release()

    def release(self) -> None:
        self._lock.release()

    def shut(self) -> None:
        """Close the connections, and let none be made until `release`."""
        self._lock.acquire()
        for close in tuple(self.on_fork):
            close()


_gates: weakref.WeakSet[ForkGate] = weakref.WeakSet()
_shut: list[ForkGate] = []
_is_loud = False  # whether connections were made since gRPC was quiet; closed ones may keep its threads for a while


def _before() -> None:
    global _is_loud  # noqa: PLW0603
    for gate in tuple(_gates):
        if gate.on_fork:
            gate.shut()
            _shut.append(gate)
    if _is_loud:
        _wait_until_quiet()
        _is_loud = False


def _wait_until_quiet() -> None:
    """Wait for gRPC's threads to end; other users of gRPC in this process may keep them."""
    until, looks = time.monotonic() + _QUIET_S, 0
    while time.monotonic() < until:
        if looks % _COLLECT_EVERY == 0:
            gc.collect()  # circles of references keep closed channels, and these the threads
        if looks and not _is_grpc_running():
            return
        looks += 1
        time.sleep(_LOOK_EVERY_S)


def _is_grpc_running() -> bool:
    """Whether threads of gRPC exist. True where the system doesn't say."""
    try:
        return any(_name(each).startswith(_OF_GRPC) for each in _THREADS.iterdir())
    except OSError:
        return True


def _name(thread: Path) -> str:
    try:
        return (thread / "comm").read_text()
    except OSError:  # it has ended
        return ""


def _after_in_parent() -> None:
    while _shut:
        _shut.pop().release()


def _after_in_child() -> None:
    """Forget the parent's gates: their clients' threads don't exist here."""
    _gates.clear()
    _shut.clear()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
