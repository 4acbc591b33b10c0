"""Log throttle: limits entries per kind and in total, and summarizes the others by project every ten seconds."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 10.0
_OF_ALL = 100  # entries
_NAMED = 20  # projects


class LogThrottle:
    """Allows `of_kind` entries per kind, and 100 in total, in each interval. If entries were suppressed,
    `on_suppressed(count, projects, unnamed)` is called at the end of the interval: with their number, the number for
    each of the 20 projects with the most, and the number for all other projects together.

    Invariant: `_ends` is set from the first entry of an interval to its end; the counters are those of that interval.
    """

    def __init__(
        self, of_kind: int, on_suppressed: Callable[[int, dict[str, int], int], object], *, every_s: float = EVERY_S
    ) -> None:
        self._of_kind, self._on_suppressed, self._every_s = of_kind, on_suppressed, every_s
        self._logged: Counter[tuple[str, str]] = Counter()
        self._suppressed: Counter[str] = Counter()
        self._lines = 0
        self._ends: asyncio.TimerHandle | None = None

    def may_log(self, project: str, kind: str = "") -> bool:
        """Return whether to log now; otherwise count the entry as suppressed. Kinds are per project."""
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(self._every_s, self._end)
        if self._lines >= _OF_ALL or self._logged[project, kind] >= self._of_kind:
            self._suppressed[project] += 1
            return False
        self._lines += 1
        self._logged[project, kind] += 1
        return True

    def stop(self) -> None:
        """Sum up now. Later entries start a new interval."""
        if self._ends is not None:
            self._ends.cancel()
            self._end()

    def _end(self) -> None:
        suppressed, self._suppressed = self._suppressed, Counter()
        self._logged.clear()
        self._ends, self._lines = None, 0
        if suppressed:
            most = dict(suppressed.most_common(_NAMED))
            self._on_suppressed(suppressed.total(), most, suppressed.total() - sum(most.values()))
