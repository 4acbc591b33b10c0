"""The line between a supervisor and each of its nodes. The node says on it how far it is; and when one end is
gone, however it went, the kernel tells the other.
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


class Ready(NamedTuple):
    """What a node had when it became ready."""

    partitions: int
    generation: int
    http: str | None = None  # where it serves, if it does


class Lifeline:
    """The node's end. When the supervisor is gone the node gets a SIGTERM, and SIGKILL if it hasn't ended
    `drain_grace_s` and 5 s later.

    Not the kernel's parent-death signal, which knows one signal only: SIGKILL would leave the partitions without
    an owner until the lease ends, SIGTERM alone would leave a node that hangs alone for ever. In a thread, so that
    a handler that blocks the event loop doesn't block this.
    """

    def __init__(self, descriptor: int, drain_grace_s: float) -> None:
        os.set_inheritable(descriptor, False)  # what a handler starts must not hold the line
        self._line = socket.socket(fileno=descriptor)
        self._kill_after_s = drain_grace_s + KILL_AFTER_S
        threading.Thread(target=self._outlive_nobody, name="lifeline", daemon=True).start()

    def joined(self) -> None:
        """Settings, handler and cluster are as they should be: what else is wrong, is wrong with this node."""
        self._say(_JOINED)

    def ready(self, ready: Ready) -> None:
        self._say(" ".join([_READY, *(str(each) for each in ready if each is not None)]))

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, which the thread sees as well
            self._line.sendall(f"{line}\n".encode())

    def _outlive_nobody(self) -> None:
        # Signals are for the main thread: this one would take them and leave that one asleep.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with contextlib.suppress(OSError):
            while self._line.recv(64):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self._kill_after_s)
        os.kill(os.getpid(), signal.SIGKILL)


def understood(line: bytes) -> Ready | None:
    """What a node said: Ready, or None that it has joined."""
    match line.decode().split():
        case [word, partitions, generation, *http] if word == _READY:
            return Ready(int(partitions), int(generation), *http)
    return None
