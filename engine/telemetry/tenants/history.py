"""A node's figures of the last two minutes by label, second by second, as its overviews would have shown them. Pure.

Seconds are unix seconds by the store's clock, so that the histories of nodes with different clocks can be added up. A
label that was at rest in a round has no entry for it: its figures were 0. Each label takes 2.3 kB, and at most
`MOST_LABELS` have a history.

A node that takes a partition over doesn't know its past; the node that had it does. So a history also says from when to
when the node knew the whole backlog of which partition: see `evenlane.engine.admin.history.merge`.
"""

from __future__ import annotations

from array import array
from collections import deque
from math import isnan, nan
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.telemetry.metric_names import OTHER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.telemetry.tenants.backlog import TenantBacklog

KEPT_S = 120
MOST_LABELS = 1_000
RATES = ("arriving", "handled", "failed")
"""Those attributes of `Rates` that are kept; a further one needs no other change."""
FIGURES = ("backlog", *RATES)

_WIDTH = len(FIGURES)
_read_rates = attrgetter(*RATES)
_UNKNOWN_RATES = (nan,) * len(RATES)
_BACK_S = 5  # the clock may go back by less, as it is measured again
_LONGEST_S = 60  # between two rounds, for which the figures still count as shown
_NOTHING = array("f", bytes(4 * _WIDTH))
_UNKNOWN = array("f", [nan] * _WIDTH)


class Interval(NamedTuple):
    """From when to when, both inclusive, the node knew the whole backlog of these partitions."""

    first: int
    last: int
    partitions: list[int]


class LabelHistory:
    """The figures of a label. `since` is the first second for which they are known; before that the label was among the
    others. `last` is the last second that was written; each figure before that is in `values`, at its second modulo
    `KEPT_S`.
    """

    __slots__ = ("last", "since", "values")

    def __init__(self, since: int, last: int) -> None:
        self.since, self.last = since, last
        self.values = array("f", bytes(4 * _WIDTH * KEPT_S))

    def fill(self, until: int, figures: array[float]) -> None:
        """Write these figures into all seconds after the last one."""
        for second in range(max(self.last + 1, until - KEPT_S + 1), until + 1):
            place = second % KEPT_S * _WIDTH
            self.values[place : place + _WIDTH] = figures
        self.last = max(self.last, until)

    def end_at(self, second: int, figures: array[float]) -> None:
        """Prepare for a write at this second: fill the pause before, and let it be written again."""
        if self.last < second - 1:
            self.fill(second - 1, figures)
        self.last = second - 1

    def at(self, second: int) -> array[float]:
        """Return the figures of a second that was written at most `KEPT_S` seconds ago."""
        place = second % KEPT_S * _WIDTH
        return self.values[place : place + _WIDTH]

    def copy(self) -> LabelHistory:
        copied = LabelHistory.__new__(LabelHistory)
        copied.since, copied.last, copied.values = self.since, self.last, self.values[:]
        return copied


class HistoryCopy(NamedTuple):
    """A copy for a thread. `last` is the last second with a round, None without any; `moving` has the labels that had
    figures in it. `totals` are the sums of all labels.
    """

    last: int | None
    labels: dict[str, LabelHistory]
    moving: Collection[str]
    totals: LabelHistory
    known: list[Interval]

    def columns(self, label: str, seconds: range) -> list[list[float | None]]:
        """Return each figure of a label over these seconds, None where it is unknown."""
        return self._columns(self.labels[label], seconds, label in self.moving)

    def sums(self, seconds: range) -> list[list[float | None]]:
        """Return each figure of all labels together."""
        return self._columns(self.totals, seconds, True)

    def _columns(self, each: LabelHistory, seconds: range, is_shown: bool) -> list[list[float | None]]:
        """`is_shown`: an overview still shows the last figures."""
        shown = each.at(each.last) if is_shown else _NOTHING
        rows = [
            _UNKNOWN if second < each.since else each.at(second) if second <= each.last else shown for second in seconds
        ]
        return [
            [None if isnan(figure) else round(figure, 3) for figure in column] for column in zip(*rows, strict=True)
        ]


class TenantHistory:
    """The history of one node, throughout its process.

    Invariants: labels in `_moving` were written in the round at `_last`. `_since` has the partitions that were known in
    it, with the first second of that; `_past` has earlier times, at most `KEPT_S` seconds ago.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._labels: dict[str, LabelHistory] = {}
        self._moving: set[str] = set()
        self._totals = LabelHistory(0, 0)
        self._since: dict[int, int] = {}
        self._past: deque[tuple[int, int, int]] = deque()

    def add(self, second: int, figures: Mapping[str, array[float]], partitions: Collection[int], others: int) -> None:
        """Add a round. `figures` are those of the labels that aren't at rest, `partitions` those whose backlog the node
        knows wholly, `others` is the number of projects without a label. If the clock has jumped, or the rounds have
        paused, the history starts over.
        """
        last = self._last
        if last is not None and not last - _BACK_S < second <= last + _LONGEST_S:
            last = None
            self._forget()
        elif last is not None:
            second = max(second, last)
        before = second - 1 if last is None else min(last, second - 1)
        self._end_pause(before, second)
        for label, now in figures.items():
            self._write(label, second, before, now, others)
        self._moving = self._labels.keys() & figures.keys()
        self._write_totals(second, before, figures)
        self._note_partitions(second, before, partitions)
        self._last = second

    def _end_pause(self, before: int, second: int) -> None:
        """Until a round ends, an overview shows the figures of the round before."""
        for label in self._moving if before < second - 1 else ():
            each = self._labels[label]
            each.fill(second - 1, each.at(before) if each.last == before else _NOTHING)
        if second % KEPT_S == 0:
            gone = [label for label, each in self._labels.items() if each.last <= second - KEPT_S]
            for label in gone:
                del self._labels[label]

    def _write(self, label: str, second: int, before: int, now: array[float], others: int) -> None:
        each = self._labels.get(label)
        if each is None:
            if len(self._labels) >= MOST_LABELS:
                return
            each = self._labels[label] = LabelHistory(second if others else 0, before)
        each.end_at(second, _NOTHING)
        each.fill(second, now)

    def _write_totals(self, second: int, before: int, figures: Mapping[str, array[float]]) -> None:
        totals = self._totals
        if totals.last == 0:
            totals.last = before
        totals.end_at(second, totals.at(before))
        totals.fill(second, array("f", map(sum, zip(*figures.values(), strict=True))) or _NOTHING)

    def _note_partitions(self, second: int, before: int, partitions: Collection[int]) -> None:
        known = set(partitions)
        if known != self._since.keys():
            for number in self._since.keys() - known:
                self._past.append((self._since.pop(number), before, number))
            for number in known - self._since.keys():
                self._since[number] = second
        while self._past and self._past[0][1] <= second - KEPT_S:
            self._past.popleft()

    def end(self) -> None:
        """The node has no partitions any more."""
        if self._last is not None:
            self._note_partitions(self._last + 1, self._last, ())

    def forget(self, label: str) -> None:
        """Forget a label that has become one of the others."""
        self._labels.pop(label, None)
        self._moving.discard(label)

    def copy(self) -> HistoryCopy:
        known: dict[tuple[int, int], list[int]] = {}
        if self._last is not None:
            for number, first in self._since.items():
                known.setdefault((first, self._last), []).append(number)
        for first, last, number in self._past:
            known.setdefault((first, last), []).append(number)
        labels = {label: each.copy() for label, each in self._labels.items() if label != OTHER}
        intervals = [Interval(first, last, sorted(numbers)) for (first, last), numbers in known.items()]
        return HistoryCopy(self._last, labels, set(self._moving), self._totals.copy(), intervals)


def sum_figures(moving: Mapping[tuple[str, int], TenantBacklog]) -> dict[str, array[float]]:
    """Return the figures of labels over their priorities, given by label and priority; NaN for an unknown figure."""
    by_label: dict[str, list[TenantBacklog]] = {}
    for (label, _), each in moving.items():
        by_label.setdefault(label, []).append(each)
    return {label: array("f", _sum(bands)) for label, bands in by_label.items()}


def _sum(bands: Iterable[TenantBacklog]) -> list[float]:
    sums = [0.0] * _WIDTH
    for band in bands:
        rates = _UNKNOWN_RATES if band.rates is None else _read_rates(band.rates)
        for place, figure in enumerate((band.backlog, *rates)):
            sums[place] += figure
    return sums
