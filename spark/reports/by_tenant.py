"""Distributes the rows of grains by tenant, and computes each tenant's figures where its rows are.

Spark divides and stores rows; Polars computes on all rows of some tenants at once. It takes a fraction of the time that
Spark takes for the same steps, most of which goes into compiling their code (decision 0043).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.expressions import from_arrow, physical, to_arrow
from evenlane.spark.reports.figures import figures
from evenlane.spark.reports.keys import PARTITION_EPOCH, RUN
from evenlane.spark.reports.reduction import ReducedRows
from evenlane.spark.reports.schemas import FIGURES, WAIT_COUNTS
from evenlane.spark.reports.workers import count_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from evenlane.spark.reports.reduction import GrainRows
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.targets import Targets
    from evenlane.spark.reports.timeline import Timeline


def tenant_figures(spark: SparkSession, rows: GrainRows, timeline: Timeline, span: Span, targets: Targets) -> DataFrame:
    """Compute FIGURES from rows of the span's grain length; waits may be those of WAIT_LEVELS or WAIT_LISTS. If the
    rows are in this process, it computes: it would take longer to start others and to pass them rows.
    """
    if isinstance(rows, ReducedRows):
        found = _compute_figures(from_arrow(rows.levels), from_arrow(rows.waits), timeline, span, targets)
        return spark.createDataFrame(to_arrow(found, FIGURES), FIGURES)
    named = rows.levels.where(F.col("project").isNotNull())
    packed = _pack(named, "level").unionByName(_pack(_list_waits(rows.waits), "wait"), allowMissingColumns=True)
    compute = partial(_compute, timeline=timeline, span=span, targets=targets)
    return packed.repartition(count_partitions(packed), "project").mapInArrow(compute, FIGURES)


def _list_waits(waits: DataFrame) -> DataFrame:
    """Return rows of WAIT_LEVELS or WAIT_LISTS as the latter."""
    if "waits" in waits.columns:
        return waits
    return waits.withColumn("waits", F.array(F.struct(*WAIT_COUNTS.names))).drop(*WAIT_COUNTS.names)


def _pack(frame: DataFrame, name: str) -> DataFrame:
    return frame.select("project", F.struct(*(f"`{each}`" for each in frame.columns)).alias(name))


def _compute(
    batches: Iterable[pa.RecordBatch], timeline: Timeline, span: Span, targets: Targets
) -> Iterator[pa.RecordBatch]:
    """Compute all rows of some tenants, each of which has either a `level` or a `wait`."""
    if held := list(batches):
        rows = from_arrow(pa.Table.from_batches(held))
        levels, waits = (_unpack(rows, name) for name in ("level", "wait"))
        del held, rows  # the memory of all tenants
        yield from to_arrow(_compute_figures(levels, waits, timeline, span, targets), FIGURES).to_batches()


def _unpack(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return physical(rows.filter(pl.col(name).is_not_null()).select(name).unnest(name))


def _compute_figures(
    levels: pl.DataFrame, waits: pl.DataFrame, timeline: Timeline, span: Span, targets: Targets
) -> pl.DataFrame:
    """Add what is known of each row's epoch and run, and compute."""
    known = (
        levels.filter(pl.col("project").is_not_null())
        .join(timeline.epochs.drop("began", "named"), on=PARTITION_EPOCH)
        .join(timeline.runs, on=RUN, how="left")
    )
    return figures(known, waits.join(timeline.runs, on=RUN, how="left"), timeline.extent, span, targets)
