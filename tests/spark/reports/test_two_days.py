"""Two days of records with known loads: each figure of each hour is that of the load."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from tests.spark.reports.cases import later
from tests.spark.reports.rows import after, meter

pytestmark = pytest.mark.full

_EVERY_S = 60  # between two records
_HOURS = 48
_RECORDS = _HOURS * 60
_COUNTS = ("arrived", "handled", "retried", "dead", "expired", "dropped", "attempts")
AHEAD_S = 90


def records(project: str, partition: int, load: Any) -> list[tuple[Any, ...]]:
    """Records of a node with one queue. `load(n)` returns its counters and backlog after n records. The last record of
    an hour is one second before its end, so that the first one covers that second, too.
    """
    return [
        meter(
            _EVERY_S * number - 1, project=project, partition=partition, node=f"node-{partition}",
            span_s=float(_EVERY_S), number=number + 1, after=number, sequence=partition * 100_000 + number,
            since=after(-1), **load(number),
        )
        for number in range(_RECORDS + 1)
    ]  # fmt: skip


def steady(n: int) -> dict[str, int]:
    """10/s: handled at once."""
    return dict.fromkeys(("arrived", "handled", "attempts"), 10 * _EVERY_S * n)


def burst(n: int) -> dict[str, int]:
    """36,000 at the start of the second day; 100/s are handled until all are."""
    came, done = (36_000, min(36_000, 100 * _EVERY_S * (n - _RECORDS // 2))) if n > _RECORDS // 2 else (0, 0)
    return {"arrived": came, "handled": done, "attempts": done, "backlog": came - done}


def failing(n: int) -> dict[str, int]:
    """1/s is put, and all three attempts at it fail."""
    puts = _EVERY_S * n
    return {"arrived": 3 * puts, "retried": 2 * puts, "dead": puts, "attempts": 3 * puts}


def over(n: int) -> dict[str, int]:
    """30/s at a quota of 10/s, and two in three expire."""
    return {
        "arrived": 30 * _EVERY_S * n,
        "handled": 10 * _EVERY_S * n,
        "attempts": 10 * _EVERY_S * n,
        "expired": 20 * _EVERY_S * n,
    }


def paused(n: int) -> dict[str, int]:
    """1/s waits; a person drops all at the start of the second day."""
    puts = _EVERY_S * n
    dropped = _EVERY_S * _RECORDS // 2 if n >= _RECORDS // 2 else 0
    return {"arrived": puts, "dropped": dropped, "backlog": puts - dropped}


LOADS = {"steady": steady, "burst": burst, "failing": failing, "over": over, "paused": paused, "ahead": steady}


def test_each_hour_of_two_days_has_the_counts_of_the_load(spark, tmp_path):
    """X12, E11: exact counts, rates within 1 %; a node whose clock is 90 s ahead has the store's time, and is named."""
    rows = [row for number, (name, load) in enumerate(LOADS.items()) for row in records(name, number, load)]
    project = METER.names.index("project")
    rows = [later(row, AHEAD_S, "at") if row[project] == "ahead" else row for row in rows]
    folder, span = Folder(spark, str(tmp_path)), SPANS["1h"]
    known = folder.keep_grains(grains(spark.createDataFrame(rows, METER), span.grain_s), "grains")
    timeline = find_timeline(known)
    found = folder.keep(tenants(known, timeline, spark.createDataFrame([], DEAD), span), "tenants")
    by_project = defaultdict(list)
    for row in found.orderBy("window_start").collect():
        by_project[row.project].append(row)
    for name, load in LOADS.items():
        _, *hours = by_project[name]  # the first has only the record to begin from
        assert _HOURS == len(hours), name
        for hour, row in enumerate(hours):
            expected = growth_in_hour(load, hour)
            shown = {count: row[count] for count in _COUNTS}
            assert (name, hour, expected) == (name, hour, shown)
            assert load(60 * (hour + 1)).get("backlog", 0) == row.backlog, (name, hour)
            assert expected["arrived"] - expected["retried"] == row.first_puts
            assert row.arrival_rate == pytest.approx(expected["arrived"] / 3600, rel=0.01), (name, hour)
    rated = quality(count_records(known, span.window_s), timeline, {}, span).to_pylist()
    assert {"node-5"} == {node for row in rated for node in row["skewed_nodes"]}


def growth_in_hour(load: Any, hour: int) -> dict[str, int]:
    """The growth between the last records of two hours, but a second of each hour's first record belongs to the hour
    before.
    """
    whole = growth(load, 60 * hour, 60 * (hour + 1))
    first, following = (_second_of(load, 60 * each + 1) for each in (hour, hour + 1))
    return {name: whole[name] - first[name] + following[name] for name in _COUNTS}


def _second_of(load: Any, number: int) -> dict[str, int]:
    if number > _RECORDS:
        return dict.fromkeys(_COUNTS, 0)
    return {name: round(count / _EVERY_S) for name, count in growth(load, number - 1, number).items()}


def growth(load: Any, first: int, last: int) -> dict[str, int]:
    before, now = load(first), load(last)
    return {name: now.get(name, 0) - before.get(name, 0) for name in _COUNTS}
