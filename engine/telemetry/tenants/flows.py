"""Flows of messages by project: arrivals, outcomes and durations, from the queues' own counters. Pure."""

from __future__ import annotations

from array import array
from operator import add, sub
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evenlane.engine.core.stats.backlog_trend import BacklogTrend
from evenlane.engine.core.stats.flow_counts import FlowCounts
from evenlane.engine.core.stats.forecast import LONG, LONG_APART, LONGEST, Sample, SampleHistory, measure_rates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.backlog_answer import Rates

_SECOND = 1_000_000_000
_APART = _SECOND  # ns between two samples


class TenantFlow(NamedTuple):
    """The counts of `FlowCounts`; attempts for which a handler was started, how long their messages had waited and how
    long their handlers ran, both in ns; known messages that were missing from the stream.
    """

    arrived: int = 0
    handled: int = 0
    retried: int = 0
    dead: int = 0
    expired: int = 0
    dropped: int = 0
    attempts: int = 0
    dwelt: int = 0
    ran: int = 0
    missing: int = 0

    @property
    def counts(self) -> FlowCounts:
        return FlowCounts(self.arrived, self.handled, self.retried, self.dead, self.expired, self.dropped)

    @property
    def moved(self) -> int:
        """Messages that came or went."""
        return self.arrived + self.counts.left

    def plus(self, other: TenantFlow) -> TenantFlow:
        return TenantFlow(*map(add, self, other))


NOTHING = TenantFlow()


def measure_flow(queue: Queue) -> TenantFlow:
    """Return what is new in a queue's counters since the last call. Each queue keeps its last values, so a queue that
    goes doesn't change the sums of others.
    """
    stats = queue.stats
    now = (*stats.flow, stats.attempts, stats.dwelt, stats.ran, stats.missing)
    published = stats.published or NOTHING
    if now == published:
        return NOTHING
    stats.published = now
    return TenantFlow(*map(sub, now, published))


_EACH = len(TenantFlow._fields)


class Flows:
    """Sums what is new in queues by project and band, over one round."""

    def __init__(self, bands: int) -> None:
        self._none = array("Q", bytes(8 * _EACH * bands))
        self._sums: dict[str, array[int]] = {}

    def add(self, project: str, band: int, flow: TenantFlow) -> None:
        if flow is NOTHING:
            return
        sums = self._sums.get(project)
        if sums is None:
            sums = self._sums[project] = self._none[:]
        for number, value in enumerate(flow, start=_EACH * band):
            sums[number] += value

    def end(self) -> Iterator[tuple[str, list[TenantFlow]]]:
        """Yield each project with new values, by band. Values left over by a failed round are part of the next one."""
        while self._sums:
            project, sums = self._sums.popitem()
            yield project, [TenantFlow(*sums[first : first + _EACH]) for first in range(0, len(sums), _EACH)]

    def clear(self) -> None:
        self._sums = {}


class GrowthRates:
    """Growth rates of counters over the last half minute, or over two rounds if they are longer."""

    def __init__(self) -> None:
        self._history, self._long = SampleHistory(_APART), SampleHistory(LONG_APART)
        self._last: Sample | None = None
        self.trend = BacklogTrend()  # of the backlog with all higher priorities, under the same circumstances
        self.at = 0  # time of the last measurement, monotonic ns

    def note_rest(self, until: int) -> None:
        """Note that nothing has grown until then, although it wasn't measured."""
        self._history.note_rest(until)
        self._long.note_rest(until, LONG)

    def note_nothing(self, since: int, until: int) -> None:
        """Note that nothing was counted at `since`, nor until then. Call it before any measurement."""
        nothing = Sample(since, FlowCounts())
        self._history.add(nothing)
        self._long.add(nothing)
        self.note_rest(until)

    def measure(self, now: int, counted: TenantFlow, round_ns: int) -> Rates | None:
        """Measure at `now` (monotonic ns). Returns None until there is an earlier sample."""
        self.at = now
        sample = self._last = Sample(now, counted.counts)
        self._long.add(sample)
        first = self._history.find_before(now, max(LONGEST, 2 * round_ns))
        self._history.add(sample)
        return None if first is None else measure_rates(first, sample)

    def prolong(self, rates: Rates, until: int) -> Rates:
        """Return the last rates as of `until`: nothing has moved, neither while they were measured nor since then."""
        seconds = rates.seconds + max(0, until - self.at) / _SECOND
        return replace(rates, seconds=max(rates.seconds, min(seconds, LONGEST / _SECOND)))

    def measure_long(self, until: int) -> Rates | None:
        """Measure over a minute to one and a half, or as long as there are samples. Nothing has grown between the last
        measurement and `until`. Returns None if there is nothing to measure from yet.
        """
        if self._last is None:
            return None
        last = self._last._replace(at=max(self._last.at, until))
        first = self._long.find_before(last.at, LONG)
        return None if first is None else measure_rates(first, last)
