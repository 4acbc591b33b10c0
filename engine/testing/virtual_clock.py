"""The clock of the test kit: time is a number, for the whole process and for one event loop."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import ConfigError
from evenlane.engine.testing.loop_time import LoopTime

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000_000
_MICROSECOND = 1_000
_INEXACT_S = 5e-10
_BEGIN = 1_000_000 * SECOND  # no clock begins at 0: a time that was never set must not look like a recent one

_in_use: list[VirtualClock] = []  # the clock of this process, if it has one


class VirtualClock:
    """`now` is monotonic ns, and changes only by `move_to`. `unix_ns` follows it: it was `start` (unix ns) at `_BEGIN`.

    The event loop's time equals `now` while the test kit runs the loop (`is_driven`). Otherwise real time is added, so
    that a test can sleep.
    """

    def __init__(self, start: int) -> None:
        self.now = _BEGIN
        self._offset = start - _BEGIN
        self.is_driven = False
        self._since = 0.0

    def unix_ns(self) -> int:
        return self.now + self._offset

    def loop_time(self) -> float:
        return self.now / SECOND + (0.0 if self.is_driven else time.monotonic() - self._since)

    def move_to(self, at: int) -> None:
        """Let time pass until `at` (monotonic ns). It never goes back."""
        self.now = max(self.now, at)

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Stop the event loop's time, so that only `move_to` changes it."""
        self.is_driven = True
        try:
            yield
        finally:
            self.is_driven, self._since = False, time.monotonic()

    @contextmanager
    def in_use(self, loop: Any, seed: int) -> Iterator[LoopTime]:
        """Give the process and this loop this clock, and random numbers of a seed. Raises ConfigError if the process
        has another such clock.
        """
        if _in_use:
            raise ConfigError("another TestApp is open in this process: one at a time, as each sets the clock")
        loop_time = LoopTime(loop, self.loop_time)
        source: Any = now_ns
        real, chance = source.__reduce__()[2], random.getstate()
        _in_use.append(self)
        self._since = time.monotonic()
        loop_time.begin()
        random.seed(seed)
        # All modules have imported this very object, so it is changed in place, which costs a call nothing.
        source.__setstate__((self._read, (), {}, None))
        try:
            yield loop_time
        finally:
            source.__setstate__(real)
            random.setstate(chance)
            loop_time.end()
            _in_use.remove(self)

    def _read(self) -> int:
        return self.now


def to_ns(seconds: float) -> int:
    """A time of the event loop in ns: to the microsecond, as floats are inexact, and never too early for the loop. It
    calls timers up to 1 ns before their time.
    """
    ns = round(seconds * 1_000_000) * _MICROSECOND
    return ns if ns / SECOND >= seconds - _INEXACT_S else ns + _MICROSECOND
