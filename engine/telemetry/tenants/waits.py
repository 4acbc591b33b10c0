"""Wait times of queue heads by reason: total by label, and recent by project. Pure."""

from __future__ import annotations

from typing import NamedTuple

_HALF = 30_000_000_000  # ns; "lately" is one to two of these
_SECOND = 1_000_000_000


class Key(NamedTuple):
    """Key of a counter; `band` is the priority's rank."""

    label: str
    band: int
    reason: str


class WaitTimes:
    """Counters of wait times. `seconds` is the time that heads of queues waited, `message_seconds` that time multiplied
    by the queues' backlogs. Neither decreases, except when a label is dropped.
    """

    def __init__(self) -> None:
        self.seconds: dict[Key, float] = {}
        self.message_seconds: dict[Key, float] = {}
        self._lately = _RecentWaits()

    def add(self, project: str, key: Key, seconds: float, backlog: int) -> None:
        """Note that the head of a queue of `project`, with `backlog` messages, has waited for `seconds`."""
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        self.message_seconds[key] = self.message_seconds.get(key, 0.0) + seconds * backlog
        self._lately.add(project, key.band, key.reason, seconds)

    def begin(self, now: int) -> None:
        """Begin a round at `now` (monotonic ns): waits added from now on ended then, or within a round before."""
        self._lately.turn(now)

    def lately(self, project: str, now: int) -> tuple[dict[tuple[int, str], float], float]:
        """Return the seconds that a project's heads waited, by (band, reason), and the seconds covered."""
        return self._lately.seconds_of(project), self._lately.seconds(now)

    def drop(self, label: str) -> None:
        for counters in (self.seconds, self.message_seconds):
            for key in [key for key in counters if key.label == label]:
                del counters[key]

    def clear(self) -> None:
        """Forget the recent wait times."""
        self._lately = _RecentWaits()


class _RecentWaits:
    """Two halves of a minute; the older one is discarded as a whole, so that a project costs two small tables.

    Invariant: `_newer` has the waits since `_turned`, `_older` those from `_since` to `_turned`, which are
    equal until the first turn. Times are monotonic ns.
    """

    def __init__(self) -> None:
        self._older: dict[str, dict[tuple[int, str], float]] = {}
        self._newer: dict[str, dict[tuple[int, str], float]] = {}
        self._since: int | None = None
        self._turned = 0

    def turn(self, now: int) -> None:
        if self._since is None:
            self._since = self._turned = now
        elif now - self._turned >= _HALF:
            self._older, self._newer = self._newer, {}
            self._since, self._turned = self._turned, now

    def add(self, project: str, band: int, reason: str, seconds: float) -> None:
        found = self._newer.setdefault(project, {})
        found[band, reason] = found.get((band, reason), 0.0) + seconds

    def seconds_of(self, project: str) -> dict[tuple[int, str], float]:
        both = dict(self._older.get(project, {}))
        for key, seconds in self._newer.get(project, {}).items():
            both[key] = both.get(key, 0.0) + seconds
        return both

    def seconds(self, now: int) -> float:
        return 0.0 if self._since is None else (now - self._since) / _SECOND
