"""Measures, from another thread, how long an event loop has been blocked. Pure."""

from __future__ import annotations

_MOST = 1_000_000_000  # ns per gap between two looks; in a longer gap the whole process was stopped


class BlockTimer:
    """Counts the time during which a loop's heartbeat hasn't changed. Times are monotonic ns.

    Of the time between two looks, at most 1 s counts. If a process was stopped or its machine slept, the whole process
    stood still, and nothing blocked its loop.
    """

    def __init__(self, beat: int, now: int) -> None:
        self._beat, self._looked_at = beat, now
        self._blocked = 0

    def look(self, beat: int, now: int) -> int:
        """Return for how many ns the loop has been blocked. `beat` is any number that changes while the loop runs."""
        gap, self._looked_at = now - self._looked_at, now
        if beat != self._beat:
            self._beat, self._blocked = beat, 0
        else:
            self._blocked += min(gap, _MOST)
        return self._blocked
