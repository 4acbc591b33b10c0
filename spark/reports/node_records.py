"""Counts the records of each node and window: missing, duplicated, late and unreadable ones, and wrong clocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from evenlane.engine.core.records.meter_record import VERSION
from evenlane.spark.reports.expressions import floor_to, from_arrow, seconds
from evenlane.spark.reports.keys import ONE_RECORD, RUN
from evenlane.spark.reports.reduction import ReducedRows
from evenlane.spark.reports.schemas import NODE_RECORDS
from evenlane.spark.reports.workers import collect, map_groups

if TYPE_CHECKING:
    from evenlane.spark.reports.reduction import GrainRows

_LATE_SPANS = 2
_NEEDED = (*ONE_RECORD, *RUN, "grain", "event", "at", "problem", "version", "number", "after", "span_s")


def count_records(rows: GrainRows, window_s: int) -> pl.DataFrame:
    """Return NODE_RECORDS."""
    if isinstance(rows, ReducedRows):
        return _count_of_nodes(from_arrow(rows.records), window_s)
    needed = rows.records.select(*_NEEDED)
    return collect(map_groups(needed, "node", partial(_count_of_nodes, window_s=window_s), NODE_RECORDS))


def _count_of_nodes(records: pl.DataFrame, window_s: int) -> pl.DataFrame:
    """Return NODE_RECORDS of some nodes from all their records, with times in unix µs."""
    readable, again = pl.col("problem").is_null(), pl.col("again")
    skewed = (pl.col("event") != pl.col("at")).fill_null(value=False)
    newer = (pl.col("version") > VERSION).fill_null(value=False)
    late_s = seconds(pl.col("stored") - pl.col("at")) - _LATE_SPANS * pl.col("span_s")
    late = ~skewed & (pl.col("span_s") > 0) & (late_s > 0).fill_null(value=False)
    marked = (
        records.unique(ONE_RECORD)
        .sort("stored", "sequence")
        .with_columns(
            floor_to(pl.col("grain"), window_s).alias("window_start"),
            (readable & ~pl.struct(*RUN, "number").is_first_distinct()).alias("again"),
        )
    )
    return (
        marked.join(_find_missing(marked.filter(readable & ~again)), on=ONE_RECORD, how="left")
        .sort("event")
        .group_by("node", "window_start", maintain_order=True)
        .agg(
            readable.sum().alias("records"),
            pl.col("missing").sum(),
            again.sum().alias("duplicated"),
            (readable & late).sum().alias("late"),
            (readable & skewed).sum().alias("skewed"),
            (~readable & ~newer).sum().alias("unreadable"),
            (~readable & newer).sum().alias("newer"),
            pl.col("event", "span_s").filter(readable).last().name.prefix("last_"),
        )
    )


def _find_missing(once: pl.DataFrame) -> pl.DataFrame:
    """Return how many records are missing before each one: a missing record was lost if a later record knows that it
    was stored.
    """
    after, before = pl.col("after"), pl.col("number").shift(1).over(RUN)
    gap = pl.when(after > before).then(after - before).otherwise(0)
    return once.sort(*RUN, "number").select(*ONE_RECORD, gap.alias("missing"))
