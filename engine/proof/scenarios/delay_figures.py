"""Figures of `delay`, read from what handlers wrote down. Times come in ns since boot unless a name says otherwise."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenarios.delay_load import PACED, TIMED
from evenlane.engine.proof.scenarios.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.proof.scenarios.cluster_records import Record
    from evenlane.engine.proof.scenarios.figures import Figures


def begins(records: Iterable[Record], project: str) -> list[Record]:
    """Of the projects whose names begin so, in order of time."""
    found = (record for record in records if record.began and record.project.startswith(project))
    return sorted(found, key=lambda record: record.at)


def lateness(records: Iterable[Record], start: int, end: int, offset: int) -> list[float]:
    """Handler start minus due time, ms, sorted, of timed messages due in [start, end); negative: before its time.
    `offset` is what has to be added to unix ns to get ns since boot.
    """
    late = (
        (record.at - record.due - offset) / MILLISECOND
        for record in begins(records, TIMED)
        if start <= record.due + offset < end
    )
    return sorted(late)


def waits(records: Iterable[Record], start: int, end: int, offset: int) -> list[float]:
    """From put to handler start, ms, sorted, of paced messages put in [start, end)."""
    return sorted(
        (record.at - record.put - offset) / MILLISECOND
        for record in begins(records, PACED)
        if start <= record.put + offset < end
    )


def spread(values: Sequence[float], name: str) -> Figures:
    """Of sorted values in ms."""
    return {
        f"{name}_p50_ms": percentile(values, 0.5),
        f"{name}_p99_ms": percentile(values, 0.99),
        f"{name}_max_ms": values[-1] if values else None,
    }


def rate(records: Iterable[Record], project: str, start: int, end: int) -> float:
    """Begins of a project in [start, end), msg/s."""
    return sum(start <= record.at < end for record in begins(records, project)) * SECOND / (end - start)


def most_in_1_s(records: Iterable[Record], project: str) -> int:
    """The most begins within any second."""
    times = [record.at for record in begins(records, project)]
    most = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - SECOND:
            first += 1
        most = max(most, last - first + 1)
    return most


def early(records: Iterable[Record], offset: int) -> int:
    """Begins before the message was due."""
    return sum(record.began and record.at < record.due + offset for record in records)


def again(records: Iterable[Record]) -> int:
    """Begins of messages that had begun before."""
    counts = Counter(record.message for record in records if record.began)
    return counts.total() - len(counts)


def kind_of(record: Record) -> str:
    """The kind of project it is of."""
    return record.project.partition("-")[0]


def handled(records: Iterable[Record]) -> Counter[str]:
    """How many messages were handled, by kind of project."""
    return Counter({record.message: kind_of(record) for record in records if not record.began}.values())
