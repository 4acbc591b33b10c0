"""Guard program between parent and server: `python -I -S guard.py PARENT_PID SIGNAL PROGRAM ARGUMENT...`.

It asks the kernel to send this process the signal SIGNAL when its parent dies, and then becomes the server: the request
survives exec. So no defect of the parent leaves an orphan, and neither does kill -9 of the parent. The guard imports
only the standard library, nothing of the engine, so that it costs a few milliseconds.

The kernel's "parent" is the *thread* that forked, so `child.spawn` insists on the main thread.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, signal: int, command: list[str]) -> str:
    """Become `command`. Returns an error message only if that failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) != 0:
        return f"the kernel refused the parent-death signal: {os.strerror(ctypes.get_errno())}"
    # The parent may have died before the request took effect; this process then already has another parent.
    if os.getppid() != parent:
        return f"the parent process {parent} is gone"
    try:
        os.execv(command[0], command)  # noqa: S606 - a shell isn't needed
    except OSError as error:
        return f"{command[0]} can't be started: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
