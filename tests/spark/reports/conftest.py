"""One report for all tests: simulated tenants whose history is known, and hand-made tenants."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.expressions import from_arrow
from evenlane.spark.reports.grains import Grains, grains, union_grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.noisy import noisy
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import sum_uncounted, tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from tests.spark.reports import cases
from tests.spark.reports.ledger import TenantHistory
from tests.spark.reports.partitions import two_partitions

if TYPE_CHECKING:
    import polars as pl

SPAN = SPANS["5m"]
WORLDS = 24


class Report(NamedTuple):
    worlds: list[TenantHistory]
    known: Grains
    rows: dict[str, list[Any]]
    """The rows of each project, in the order of windows."""
    tenants: pl.LazyFrame
    noisy: list[Any]
    quality: list[Any]


@pytest.fixture(scope="session")
def report(spark, tmp_path_factory):
    """A report from two parts of the records, one of them twice, as after a kill of a streaming job."""
    worlds = [
        TenantHistory(random.Random(case), case, lossy=case % 2 == 1, deadly=case % 4 >= 2).run(60)
        for case in range(WORLDS)
    ]
    rows = [*cases.rows(), *(row for world in worlds for row in world.rows)]
    random.Random(0).shuffle(rows)
    folder = Folder(spark, str(tmp_path_factory.mktemp("report")))
    with two_partitions(spark):
        meter = folder.keep(spark.createDataFrame(rows, METER), "meter")
        one = grains(meter.where("sequence % 3 = 0"), 60)
        other = grains(meter.where("sequence % 3 <> 0"), 60, [one.records])
        known = folder.keep_grains(union_grains(one, other, one), "grains")
        timeline, dead = find_timeline(known), spark.createDataFrame(cases.dead_letters(), DEAD)
        found = folder.keep(tenants(known, timeline, dead, SPAN), "tenants")
        by_project = defaultdict(list)
        for row in found.orderBy("window_start").collect():
            by_project[row.project].append(row)
        rows = from_arrow(found.toArrow()).lazy()
        rated = quality(count_records(known, SPAN.window_s), timeline, sum_uncounted(rows), SPAN)
        return Report(
            worlds, known, by_project, rows,
            noisy(rows).sort("window_start").collect().to_dicts(),
            rated.to_pylist(),
        )  # fmt: skip
