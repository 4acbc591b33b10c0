"""The program between parent and server: `python -I -S guard.py PARENT_PID PROGRAM ARGUMENT...`.

It asks the kernel to kill this process with SIGKILL when its parent dies, then becomes the server: what it
asked for survives exec. So nothing the parent forgets, and not even kill -9 of it, leaves an orphan. It
imports the standard library only and nothing of the engine, so that it costs a few milliseconds.

The kernel means by "parent" the *thread* that forked, so `child.spawn` insists on the main thread.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def main(parent: int, command: list[str]) -> str:
    """Become `command`; returns (what went wrong) only if that failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0:
        return f"the kernel refused the parent-death signal: {os.strerror(ctypes.get_errno())}"
    # The parent may have died before the request was in force; this process then has another parent already.
    if os.getppid() != parent:
        return f"the parent process {parent} is gone"
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        return f"{command[0]} can't be started: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
