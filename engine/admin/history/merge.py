"""Adds up the histories of nodes. Pure.

A figure of a second is known if the nodes that answer knew the whole backlog of all partitions that it is about. A
partition that no answering node has now is left out, as in an overview. So after the death of a node, the figures of
projects on its partitions begin when other nodes have read their backlog, and those of other projects are whole.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.admin.history.messages import LabelColumns, NodeHistory

_SECOND = 1_000_000_000

Figures = tuple[float | None, ...]


class PastSecond(NamedTuple):
    """The figures of one second at `at` (unix ns), in the order that was asked for, None where they are unknown."""

    at: int
    totals: Figures
    tenants: dict[str, Figures]


def merge_histories(answers: Sequence[NodeHistory], names: Sequence[str], now: int) -> list[PastSecond]:
    """Return the seconds that all answers have, oldest first. The store's clock is converted to that of the caller, by
    which it is `now` (unix ns). A figure that a node doesn't have, being of another release, is unknown.
    """
    if not answers:
        return []
    first = max(answer.first for answer in answers)
    last = min(answer.first + len(answer.totals[0]) - 1 for answer in answers)
    seconds = range(first, last + 1)
    if not seconds:
        return []
    coverage = _Coverage(answers, seconds)
    totals = _sum([(answer, answer.totals) for answer in answers], names, seconds, coverage.of_all())
    rows: dict[str, list[tuple[NodeHistory, LabelColumns]]] = {}
    for answer in answers:
        for row in answer.rows:
            rows.setdefault(row.project, []).append((answer, row))
    tenants = {
        project: _sum([(answer, row.figures) for answer, row in parts], names, seconds, coverage.of(parts))
        for project, parts in rows.items()
    }
    shift = now - max(answer.now for answer in answers)
    return [
        PastSecond(second * _SECOND + shift, totals[place], {project: each[place] for project, each in tenants.items()})
        for place, second in enumerate(seconds)
    ]


class _Coverage:
    """Which partitions were known when: for each one an integer with a bit for each second."""

    def __init__(self, answers: Iterable[NodeHistory], seconds: range) -> None:
        self._seconds = seconds
        self._known: dict[int, int] = {}
        for answer in answers:
            for first, last, partitions in ((each.first, each.last, each.partitions) for each in answer.known):
                mask = self._mask(first, last)
                for number in partitions:
                    self._known[number] = self._known.get(number, 0) | mask
        now = 1 << (len(seconds) - 1)
        self._present = {number for number, mask in self._known.items() if mask & now}

    def of_all(self) -> int:
        return self._of(self._present)

    def of(self, parts: Iterable[tuple[NodeHistory, LabelColumns]]) -> int:
        """Return the seconds for which the partitions of a project are known. Without a topic, they may be any."""
        partitions = {number for _, row in parts for number in row.partitions}
        return self._of(partitions & self._present if partitions else self._present)

    def _of(self, partitions: Iterable[int]) -> int:
        mask = self._mask(self._seconds.start, self._seconds.stop)
        for number in partitions:
            mask &= self._known[number]
        return mask if self._present else 0

    def _mask(self, first: int, last: int) -> int:
        """Return the bits of these seconds, as far as they are among those asked for."""
        start, length = self._seconds.start, len(self._seconds)
        below, count = max(0, first - start), min(length, last + 1 - start)
        return (1 << count) - (1 << below) if count > below else 0


def _sum(
    parts: Sequence[tuple[NodeHistory, Sequence[Sequence[float | None]]]],
    names: Sequence[str],
    seconds: range,
    known: int,
) -> list[Figures]:
    """Return the sum over nodes for each second, with a figure for each of `names`."""
    columns: list[list[float | None]] = []
    for name in names:
        if not all(name in answer.names for answer, _ in parts):
            columns.append([None] * len(seconds))
            continue
        each = [(seconds.start - answer.first, figures[answer.names.index(name)]) for answer, figures in parts]
        columns.append([
            _add([column[skipped + place] for skipped, column in each]) if known >> place & 1 else None
            for place in range(len(seconds))
        ])  # fmt: skip
    return [tuple(row) for row in zip(*columns, strict=True)]


def _add(figures: Sequence[float | None]) -> float | None:
    """Return the sum, None if one is unknown: the others' sum would be too low."""
    known = [figure for figure in figures if figure is not None]
    return round(fsum(known), 3) if len(known) == len(figures) else None
