"""Ends a process whose handler holds Python's interpreter lock, so that no other thread can run.

An example is a regular expression that backtracks for minutes. The timer of `faulthandler` needs no lock: it writes all
stacks to stderr and ends the process with exit code 1. It also runs while the process is stopped.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from typing import Self

_EVERY_S = 1.0
_LATER_S = 5.0  # later than the watch in the lease's thread, which reports more and acts first where it can


class Watchdog:
    """Watches the running event loop inside its context. `limit_s` is `block_limit`; 0: no limit."""

    def __init__(self, limit_s: float, later_s: float = _LATER_S) -> None:
        self._limit_s, self._after_s = limit_s, limit_s + later_s
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._limit_s:
            self._rearm()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _rearm(self) -> None:
        faulthandler.dump_traceback_later(self._after_s, exit=True, file=sys.__stderr__ or sys.stderr)
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._rearm)
