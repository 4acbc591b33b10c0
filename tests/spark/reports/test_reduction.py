"""Reduction of records where they are read, against Spark's of the same rows; and where figures are computed."""

import random

import polars as pl
import pyarrow as pa
import pytest

from evenlane.spark.reports.grains import Grains, grains, merge_grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.reduction import REDUCED, ReducedRows, reduce_rows
from evenlane.spark.reports.schemas import WAITS
from evenlane.spark.reports.spans import SPANS, Span
from evenlane.spark.reports.tenants import tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from evenlane.spark.source.columns import arrow_schema
from tests.spark.reports import cases
from tests.spark.reports.ledger import TenantHistory
from tests.spark.reports.rows import flat

_KEY = ("project", "window_start")


@pytest.fixture(scope="module")
def rows(spark):
    """Records of several tenants, some of them lost, late, doubled, unreadable or with a wrong clock."""
    worlds = [
        TenantHistory(random.Random(case), case, lossy=case % 2 == 1, deadly=case >= 2).run(30) for case in range(4)
    ]
    every = [*cases.rows(), *(row for world in worlds for row in world.rows)]
    random.Random(1).shuffle(every)
    return spark.createDataFrame([*every, *every[:50]], METER).toArrow().cast(arrow_schema(METER))


def _in_parts(rows: pa.Table, count: int, behind) -> list[pa.Table]:
    size = -(-len(rows) // count)
    parts = [reduce_rows(rows.slice(start, size), Span(60, 60), behind) for start in range(0, len(rows), size)]
    return [pa.concat_tables(tables) for tables in zip(*parts, strict=True)]


def _runs(rows: pa.Table) -> list[tuple[str, int]]:
    found = zip(rows["node"].to_pylist(), rows["run"].to_pylist(), strict=True)
    return sorted({(node, run) for node, run in found if run is not None})


def _frames(spark, reduced) -> Grains:
    return Grains(*(spark.createDataFrame(*each) for each in zip(reduced, REDUCED, strict=True)))


def _rounded(value):
    """Without the last digits, which depend on the order in which numbers are added."""
    match value:
        case float():
            return float(f"{value:.9g}")
        case tuple() | list():
            return [_rounded(each) for each in value]
    return value


def _sorted(value):
    """Without the order of rows."""
    return value.sort(value.columns).rows() if isinstance(value, pl.DataFrame) else value


def _contents(frames) -> list[list[str]]:
    return [sorted(map(str, frame.collect())) for frame in frames]


@pytest.mark.parametrize("slow_clocks", [0, 2])
@pytest.mark.parametrize("parts", [1, 7])
def test_reduced_parts_merge_to_what_spark_finds(spark, rows, parts, slow_clocks):
    """A report doesn't depend on how its records were divided over tasks."""
    behind = _runs(rows)[:slow_clocks]
    assert len(behind) == slow_clocks
    reduced = _in_parts(rows, parts, behind)
    frames = _frames(spark, reduced)
    frames = frames._replace(waits=flat(frames.waits))
    expected = grains(spark.createDataFrame(rows, METER), 60, behind=behind)
    assert _contents(expected) == _contents(merge_grains(frames) if parts > 1 else frames)


def test_waits_of_windows_give_the_same_percentiles(spark, rows):
    """Waits are reduced to windows where they are read, and to grains by the job that keeps tables."""
    span = SPANS["1h"]
    frames = _frames(spark, reduce_rows(rows, span))
    finest = grains(spark.createDataFrame(rows, METER), 60, behind=[])
    assert len(finest.waits.collect()) > len(flat(frames.waits).collect())
    dead = spark.createDataFrame([], DEAD)
    found = [tenants(each, find_timeline(each), dead, span).select(*_KEY, *WAITS) for each in (finest, frames)]
    assert any(row.wait_p50_s for row in found[0].collect())
    assert 1 == len({str(each) for each in _contents(found)})


def test_driver_and_tasks_compute_the_same_figures(spark, rows):
    """The driver computes reports of few grains, Python workers those of many."""
    span, dead = SPANS["5m"], spark.createDataFrame(cases.dead_letters(), DEAD)
    here = ReducedRows(*_in_parts(rows, 3, ()))
    there = _frames(spark, here)
    timelines = [find_timeline(each) for each in (here, there)]
    assert [_sorted(each) for each in timelines[0]] == [_sorted(each) for each in timelines[1]]
    found = [
        tenants(*each, dead, span).orderBy("project", "window_start").collect()
        for each in zip((here, there), timelines, strict=True)
    ]
    ours, theirs = ([_rounded(row) for row in each] for each in found)
    assert len(ours) > 50
    assert ours == theirs
    ours, theirs = (_sorted(count_records(each, span.window_s)) for each in (here, there))
    assert ours == theirs


def test_no_rows_reduce_to_no_rows():
    assert [0, 0, 0] == [len(table) for table in reduce_rows(arrow_schema(METER).empty_table(), SPANS["1h"])]
