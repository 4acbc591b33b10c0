"""Ends a process in time, whatever threads a handler has left in it, and at once at a second signal."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 0.5  # for threads that are about to end
_FAREWELL_S = 0.4  # for the log, `atexit` callbacks and buffered output; both together stay below 1 s
_AT_ONCE_S = 0.2  # for buffered output at a second signal
_THREADS, _FRAMES = 20, 10  # limits of what is logged

_limited, _terminated = threading.Event(), threading.Event()


def limit_end() -> None:
    """Limit the end of this process (`exit_process`): from now on it runs the code of users."""
    _limited.set()


def exit_process(code: int) -> NoReturn:
    """Exit with `code`. After `limit_end`, threads that aren't daemons delay the exit by less than 1 s; then their
    names and stacks are logged, and the process ends without them.

    Without such threads the interpreter ends as usual, and its `atexit` callbacks take all the time they need.
    Otherwise they have 0.4 s, in a thread of their own, as the main thread still waits for the threads.
    """
    if _limited.is_set():
        _LimitedEnd(code).begin()
    sys.exit(code)


def leave_at_once(number: int, *last: Callable[[], object]) -> NoReturn:
    """End the process with exit code 128 + `number`, even during a handler that blocks the event loop. For a signal
    handler. `last` calls and buffered output get 0.2 s; `atexit` callbacks don't run.
    """
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # further signals would only delay the end
    with suppress(OSError):
        os.write(2, b"evenlane: interrupted\n" if number == signal.SIGINT else b"evenlane: terminated\n")

    def finish() -> None:
        for call in last:
            call()
        _flush()

    # The main thread may hold the lock of a buffer, or be blocked by a pipe that nobody reads.
    _run_within(_AT_ONCE_S, finish)
    os._exit(128 + number)


def interrupt(number: int) -> NoReturn:
    """Raise KeyboardInterrupt. For a signal handler in a process without handlers of messages."""
    if number == signal.SIGTERM:
        _terminated.set()
    raise KeyboardInterrupt


def is_terminated() -> bool:
    """Whether SIGTERM has caused the KeyboardInterrupt: an event loop doesn't pass on the type of the error."""
    return _terminated.is_set()


class _LimitedEnd:
    """The end of the process. The holder of `_claimed` runs the `atexit` callbacks: the interpreter, after the end of
    all threads, or the thread that ends the process without them.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._claimed = threading.Lock()
        self._finisher: int | None = None

    def begin(self) -> None:
        atexit.register(self._on_atexit)  # the last one to be registered is called first
        threading.Thread(target=self._end_late, name="end of the process", daemon=True).start()

    def _on_atexit(self) -> None:
        if threading.get_ident() != self._finisher and not self._claimed.acquire(blocking=False):
            threading.Event().wait()  # for the other thread, which is ending the process

    def _end_late(self) -> None:
        time.sleep(_PATIENCE_S)
        left = _threads_left()
        if left and self._claimed.acquire(blocking=False):
            _run_within(_FAREWELL_S, lambda: self._finish(left))
            os._exit(self._code)

    def _finish(self, left: list[threading.Thread]) -> None:
        import structlog  # noqa: PLC0415 - every command imports this module, and few reach this line

        self._finisher = threading.get_ident()
        _log = structlog.get_logger(__name__)
        _log.warning(
            "threads are left: the process ends without them",
            threads=[describe_thread(each) for each in left[:_THREADS]],
            more=max(len(left) - _THREADS, 0),
        )
        atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out
        _flush()


def describe_thread(thread: threading.Thread) -> str:
    """Describe a thread by its name and its stack, innermost call first."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - made for this
    stack = traceback.extract_stack(frame)[: -_FRAMES - 1 : -1] if frame is not None else []
    return f"{thread.name}: " + " < ".join(f"{each.filename}:{each.lineno} {each.name}" for each in stack)


def _threads_left() -> list[threading.Thread]:
    main = threading.main_thread()
    return [each for each in threading.enumerate() if each is not main and not each.daemon]


def _run_within(seconds: float, work: Callable[[], object]) -> None:
    """Run `work` in a thread, and wait no longer than this for its end."""
    thread = threading.Thread(target=work, name="last words", daemon=True)
    with suppress(RuntimeError):  # no further thread can be started
        thread.start()
        thread.join(seconds)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
