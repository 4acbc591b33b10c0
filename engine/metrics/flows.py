"""What arrived and ended, from the queues' own counters. Pure."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from engine.forecast import LONGEST, History, Rates, Sample, between

if TYPE_CHECKING:
    from collections.abc import Iterator

_APART = 1_000_000_000  # ns between two samples
_EACH = 3  # counters of a queue


class Flow(NamedTuple):
    """Messages that arrived and were handled, and attempts that failed or expired."""

    arrived: int = 0
    handled: int = 0
    failed: int = 0

    def plus(self, other: Flow) -> Flow:
        return Flow(self.arrived + other.arrived, self.handled + other.handled, self.failed + other.failed)


class Flows:
    """Adds queues up by project and band, and says by how much each has grown since the round before. A sum that falls,
    as a partition has gone, has grown by nothing.
    """

    def __init__(self, bands: int) -> None:
        self._none = array("Q", bytes(8 * _EACH * bands))
        self._before: dict[str, array[int]] = {}
        self._sums: dict[str, array[int]] = {}

    def begin(self) -> None:
        self._sums = {}

    def look(self, project: str, band: int, arrived: int, handled: int, failed: int) -> None:
        sums = self._sums.get(project)
        if sums is None:
            sums = self._sums[project] = self._none[:]
        first = _EACH * band
        sums[first] += arrived
        sums[first + 1] += handled
        sums[first + 2] += failed

    def end(self) -> Iterator[tuple[str, list[Flow]]]:
        """For each project of which anything is new, by band, what."""
        before, self._before = self._before, self._sums
        for project, sums in self._before.items():
            known = before.get(project, self._none)
            if sums == known:
                continue
            grown = [max(0, now - then) for now, then in zip(sums, known, strict=True)]
            yield project, [Flow(*grown[first : first + _EACH]) for first in range(0, len(grown), _EACH)]

    def void(self) -> None:
        """The queues count from 0 again."""
        self._before, self._sums = {}, {}


class Pace:
    """How fast counters grow, over the last half minute, or two rounds if they are longer."""

    def __init__(self) -> None:
        self._history = History(_APART)

    def measured(self, now: int, counted: Flow, round_ns: int) -> Rates | None:
        """`now` is monotonic ns. None until there is something to measure from."""
        sample = Sample(now, *counted)
        first = self._history.before(now, max(LONGEST, 2 * round_ns))
        self._history.add(sample)
        return None if first is None else between(first, sample)
