"""Totals of meter records, computed in plain Python: an oracle for reports, by the law of conservation
(docs/reference/metering.md).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.meter_record import COUNTERS, decode, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable


class Row(NamedTuple):
    """One queue in one record."""

    node: str
    number: int
    after: int
    at: int
    partition: int
    epoch: int
    closed: bool
    project: str
    group: int
    band: int
    backlog: int
    in_flight: int
    counters: Counter[str]
    buckets: dict[int, int]


def rows(bodies: Iterable[bytes]) -> list[Row]:
    return [row for body in bodies for row in _rows(body)]


def _rows(body: bytes) -> Iterable[Row]:
    record = decode(body)
    lanes = list(zip(*(numbers(record.lane(name)) for name in ("partition", "epoch", "closed")), strict=True))
    waits = iter(zip(numbers(record.bucket("bucket")), numbers(record.bucket("count")), strict=True))
    columns = ("lane", "topic", "group", "band", "backlog", "in_flight", "waits", *COUNTERS)
    for row in zip(*(numbers(record.queue(name)) for name in columns), strict=True):
        lane, topic, group, band, backlog, in_flight, count, *counters = row
        partition, epoch, closed = lanes[lane]
        yield Row(
            record.node, record.number, record.after, record.at, partition, epoch, bool(closed),
            record.projects[topic], group, band, backlog, in_flight,
            Counter(dict(zip(COUNTERS, counters, strict=True))), dict(next(waits) for _ in range(count)),
        )  # fmt: skip


class Totals(NamedTuple):
    """Totals. `arrived` counts each retry again. `unclosed` are the (node, partition) whose owner was replaced before
    its last record.
    """

    arrived: int
    ended: Counter[str]
    waiting: int
    waits: Counter[int]
    unclosed: set[tuple[str, int]]


def totals(found: Iterable[Row], project: str | None = None) -> Totals:
    """Totals of rows in any order, with any repeats."""
    ended, waits = Counter[str](), Counter[int]()
    waiting, unclosed = 0, set()
    for epochs in _by_queue(row for row in found if project in (None, row.project)).values():
        for epoch, last in epochs.items():
            newest = epoch == max(epochs)
            ended.update(last.counters)
            waits.update(last.buckets)
            waiting += last.backlog if newest else 0
            waiting += last.in_flight if newest or last.closed else 0
            if not newest and not last.closed:
                unclosed.add((last.node, last.partition))
    gone = sum(ended[name] for name in ("handled", "retried", "dead", "expired", "dropped"))
    return Totals(gone + waiting, ended, waiting, waits, unclosed)


def _by_queue(found: Iterable[Row]) -> dict[tuple[str, int, int], dict[int, Row]]:
    """The last row of each queue and epoch, with all its buckets so far."""
    queues: dict[tuple[str, int, int], dict[int, Row]] = {}
    for row in sorted(set_of(found), key=lambda each: each.number):
        epochs = queues.setdefault((row.project, row.group, row.band), {})
        before = epochs[row.epoch].buckets if row.epoch in epochs else {}
        epochs[row.epoch] = row._replace(buckets=before | row.buckets)
    return queues


def set_of(found: Iterable[Row]) -> Iterable[Row]:
    """Each row once: a repeated record is the same."""
    return {
        (row.node, row.number, row.partition, row.epoch, row.project, row.group, row.band): row for row in found
    }.values()
