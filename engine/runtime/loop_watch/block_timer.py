"""For how long an event loop has been blocked, as a thread beside it measures it. Pure."""

from __future__ import annotations

_MOST = 1_000_000_000  # ns between two looks that count: the rest of a longer gap is the process's own standstill


class BlockTimer:
    """Counts the time in which a loop's heartbeat has stood still. Times in monotonic ns.

    Of the time between two looks at most 1 s counts. A process that was stopped, or whose machine slept, stood still as
    a whole: its loop wasn't blocked by anybody.
    """

    def __init__(self, beat: int, now: int) -> None:
        self._beat, self._looked_at = beat, now
        self._blocked = 0

    def look(self, beat: int, now: int) -> int:
        """For how many ns the loop has been blocked; `beat` is any number that a loop that turns changes."""
        gap, self._looked_at = now - self._looked_at, now
        if beat != self._beat:
            self._beat, self._blocked = beat, 0
        else:
            self._blocked += min(gap, _MOST)
        return self._blocked
