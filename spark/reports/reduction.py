"""Reduces rows of METER to grains where they are read, and merges what several tasks found.

Most rows only repeat cumulative counters: of each queue and grain, one row is left. Counters never decrease within an
epoch and records are numbered, so rows may come in any order, and more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evenlane.spark.reports.expressions import MICROS, floor_to, from_arrow, to_arrow
from evenlane.spark.reports.grains import FILLED, SKEW_S, Grains
from evenlane.spark.reports.keys import EPOCH, ONE_RECORD
from evenlane.spark.reports.schemas import COUNTED, CUMULATIVE, LEVELS, RECORDS, TOPIC, WAIT_COUNTS, WAIT_LISTS

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from evenlane.spark.reports.spans import Span

_KEY = ("grain", *EPOCH)


class ReducedRows(NamedTuple):
    """Tables of LEVELS, WAIT_LISTS and RECORDS."""

    levels: pa.Table
    waits: pa.Table
    records: pa.Table


REDUCED = (LEVELS, WAIT_LISTS, RECORDS)
"""Schemas of ReducedRows."""
GrainRows = Grains | ReducedRows
"""Rows of grains: stored by Spark, or in this process if they are few. Each key may occur several times."""


def reduce_rows(rows: pa.Table, span: Span, behind: Collection[tuple[str, int]] = ()) -> ReducedRows:
    """Reduce rows of METER to the span's grains, and waits to its windows: each key occurs once. `behind` are the runs
    (node, run) with a slow clock.
    """
    timed = _add_times(from_arrow(rows), span.grain_s, behind)
    reported = timed.filter(pl.col("partition").is_not_null() & pl.col("problem").is_null()).with_columns(
        pl.col(name).fill_null(value) for name, value in FILLED.items()
    )
    records = timed.select(RECORDS.names).unique(ONE_RECORD)
    return ReducedRows(
        to_arrow(merge_levels(_levels(reported), span.grain_s), LEVELS),
        to_arrow(_waits(reported, span.window_s), WAIT_LISTS),
        to_arrow(records, RECORDS),
    )


def merge_levels(levels: pl.DataFrame, grain_s: int) -> pl.DataFrame:
    """Merge rows of LEVELS into grains of this length, so that each grain and queue occurs once. Other columns are the
    same for all rows of a queue.
    """
    others = [name for name in levels.columns if name not in LEVELS.names]
    last, first = pl.col("number").arg_max(), pl.col("first_number").arg_min()
    return (
        levels.sort("number")
        .group_by(floor_to(pl.col("grain"), grain_s), *EPOCH, maintain_order=True)
        .agg(
            pl.col("last_at", "backlog", "oldest_s", "in_flight").get(last),
            pl.col(TOPIC).drop_nulls().last(),
            pl.col("first_at", "first_span_s", "first_waiting").get(first),
            pl.col("since", "first_number", *(f"first_{name}" for name in COUNTED)).min(),
            pl.col("closed", "longest_s", *CUMULATIVE, "number").max(),
            pl.col(others).first(),
        )
    )


def _add_times(rows: pl.DataFrame, grain_s: int, behind: Collection[tuple[str, int]]) -> pl.DataFrame:
    """Add the event time and its grain."""
    wrong = pl.col("stored") - pl.col("at") < -SKEW_S * MICROS
    for node, run in behind:
        wrong |= (pl.col("node") == node) & (pl.col("run") == run)
    event = pl.when(wrong).then(pl.col("stored")).otherwise(pl.coalesce("at", "stored"))
    return rows.with_columns(event.alias("event")).with_columns(floor_to(pl.col("event"), grain_s).alias("grain"))


def _levels(reported: pl.DataFrame) -> pl.DataFrame:
    """Return a row of LEVELS for each row of METER."""
    firsts = {"at": "event", "span_s": "span_s", "number": "number", **{name: name for name in COUNTED}}
    return reported.with_columns(
        pl.col("event").alias("last_at"),
        (pl.col("backlog") + pl.col("in_flight")).alias("first_waiting"),
        *(pl.col(column).alias(f"first_{name}") for name, column in firsts.items()),
    ).select(LEVELS.names)


def _waits(reported: pl.DataFrame, window_s: int) -> pl.DataFrame:
    count = pl.col("count")
    counted = (
        reported.select(floor_to(pl.col("grain"), window_s), *EPOCH, "since", "number", "waits")
        .filter(pl.col("waits").list.len() > 0)
        .explode("waits")
        .unnest("waits")
        .group_by(*_KEY, "bucket")
        .agg(
            pl.col("since").min(),
            pl.col("number").min().alias("first_number"),
            count.min().alias("first_count"),
            count.max(),
        )
    )
    in_order = counted.sort("bucket").group_by(_KEY, maintain_order=True)
    return in_order.agg(pl.col("since").min(), pl.struct(WAIT_COUNTS.names).alias("waits"))
