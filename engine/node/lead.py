"""How many messages may be chosen, and named by the in-flight record, beyond the slots (X11).

Where handlers take no time a record would cover no more than the slots, and cost more than the messages in it. So
while none waits for anything, some more are chosen ahead: as many as start in a few milliseconds, which is what another
message then waits at the most. A lead is lost, and given back, when a quarter of the slots have handlers that wait, or
when it wasn't used up in time.
"""

from __future__ import annotations

_HORIZON = 8_000_000  # ns
_MOST = 512  # messages; if the process dies they have an attempt counted, and are run one at a time
_PATIENCE = 2 * _HORIZON
_WINDOW = 2_000_000  # ns over which the rate is measured, at least
_MEMORY = 10_000_000  # ns over which it is averaged


class Lead:
    """`more` is how many, for `slots` slots; none for fewer than four."""

    __slots__ = ("_busy", "_chosen", "_rate", "_since", "_started", "more")

    def __init__(self, slots: int) -> None:
        self.more = 0
        self._busy = slots // 4
        self._rate = 0.0  # messages that start in a ns
        self._chosen = self._started = self._since = 0

    def lost(self, running: int, waited: int) -> bool:
        """Whether handlers have begun to take time: so many run, and the rest could have started for `waited` ns."""
        return running > self._busy or waited > _PATIENCE

    def choose(self, now: int, running: int, waiting: int) -> None:
        """Some are about to be chosen, while so many handlers run, and so many that were chosen haven't started: work
        out how many.
        """
        passed, started = now - self._since, self._chosen - waiting
        if passed >= _WINDOW:
            rate = max(0, started - self._started) / passed
            self._rate += (rate - self._rate) * passed / (passed + _MEMORY)
            self._since, self._started = now, started
        more = 0 if running or not self._busy else min(_MOST, int(self._rate * _HORIZON))
        self.more = 1 << more.bit_length() - 1 if more else 0  # in steps, since all shares of slots change with it

    def chosen(self, count: int) -> None:
        """So many were; fewer than none if they were given back."""
        self._chosen += count
