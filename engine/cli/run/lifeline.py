"""Lifeline: the connection between a supervisor and each of its nodes. The node reports its progress on it. When either
end has gone, however it ended, the kernel notifies the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from typing import NamedTuple

KILL_AFTER_S = 5.0  # beyond the time that a drain may take
FLAG = "--lifeline"
_JOINED = "joined"
_READY = "ready"


class NodeReady(NamedTuple):
    """The state of a node when it became ready."""

    partitions: int
    generation: int
    cluster: str  # an application may name its subscription, so only the node knows
    http: str | None = None  # address served, if any


class Lifeline:
    """The node's end. When the supervisor has gone, the node gets a SIGTERM unless it already stops, and SIGKILL if it
    still runs `drain_grace_s` plus 5 s later.

    The kernel's parent-death signal doesn't suffice, as it is a single signal: SIGKILL would leave the partitions
    without an owner until the lease ends, and SIGTERM would never end a node that hangs. Runs in a thread, so that a
    handler that blocks the event loop doesn't block it.
    """

    def __init__(self, descriptor: int, drain_grace_s: float) -> None:
        os.set_inheritable(descriptor, False)  # child processes of a handler must not hold the line
        self._line = socket.socket(fileno=descriptor)
        self._kill_after_s = drain_grace_s + KILL_AFTER_S
        self._stopping = threading.Event()
        threading.Thread(target=self._outlive_nobody, name="lifeline", daemon=True).start()

    def report_joined(self) -> None:
        """Report that settings, handler and cluster are valid. Later errors are specific to this node."""
        self._send(_JOINED)

    def ready(self, ready: NodeReady) -> None:
        self._send(" ".join([_READY, *(str(each) for each in ready if each is not None)]))

    def note_stop(self) -> None:
        """Note that the node stops: another SIGTERM would break off its drain."""
        self._stopping.set()

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the supervisor has gone; the thread notices that, too
            self._line.sendall(f"{line}\n".encode())

    def _outlive_nobody(self) -> None:
        # Signals are for the main thread, which would not wake up if this thread received them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(OSError):
            while self._line.recv(64):
                pass
        if not self._stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._kill_after_s)
        os.kill(os.getpid(), signal.SIGKILL)


def parse_message(line: bytes) -> NodeReady | None:
    """Parse a node's message: NodeReady, or None for "joined"."""
    match line.decode().split():
        case [word, partitions, generation, cluster, *http] if word == _READY:
            return NodeReady(int(partitions), int(generation), cluster, *http)
    return None
