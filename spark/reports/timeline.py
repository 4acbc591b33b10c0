"""Finds what rows of several tenants share: epochs of partitions, runs of nodes, and the time that is covered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evenlane.spark.reports.expressions import MICROS, Extent, from_arrow, micros
from evenlane.spark.reports.keys import PARTITION_EPOCH, RUN
from evenlane.spark.reports.reduction import ReducedRows
from evenlane.spark.reports.schemas import EPOCH_REPORTS, RUN_RECORDS
from evenlane.spark.reports.workers import collect, map_rows

if TYPE_CHECKING:
    from evenlane.spark.reports.reduction import GrainRows

_RESTART_S = 60
"""Longer than the final and first reports of two successive owners can overlap."""
_OF_LEVELS = (*PARTITION_EPOCH, "grain", "since", "last_at", "closed", "project")
_OF_RECORDS = (*RUN, "problem", "event", "number", "at", "after", "span_s")


class Timeline(NamedTuple):
    """What rows of several tenants share. Times are in unix µs. It has a few rows for each partition and node.

    `epochs` has a row per partition and epoch. `began` and `superseded` are the grains of its own and the next epoch's
    first report (null: no next one); `handed_over` says whether it made a final report; `named` whether it reported any
    queue.

    `runs` has a row per run of a node, with its first available record. `complete` if the run has no earlier record.

    `extent` is the time that all records cover.
    """

    epochs: pl.DataFrame
    runs: pl.DataFrame
    extent: Extent


def find_timeline(rows: GrainRows) -> Timeline:
    """Find the timeline of all rows. Of rows that Spark has stored, its tasks summarize some at a time."""
    if isinstance(rows, ReducedRows):
        reported, ran = _summarize_epochs(from_arrow(rows.levels)), _summarize_runs(from_arrow(rows.records))
    else:
        levels, records = rows.levels.select(*_OF_LEVELS), rows.records.select(*_OF_RECORDS)
        reported = _merge_epochs(collect(map_rows(levels, _summarize_epochs, EPOCH_REPORTS)))
        ran = _merge_runs(collect(map_rows(records, _summarize_runs, RUN_RECORDS)))
    known = ran.filter(pl.col("run").is_not_null())
    ends = ran.select(pl.col("run_from").min(), pl.col("run_to").max()).row(0)
    return Timeline(
        _order(reported),
        known.select(*RUN, "run_number", "run_at", "run_to", "run_span_s", complete=pl.col("first_after") == 0),
        Extent(*ends) if len(ran) else Extent(0, 0),
    )


def _summarize_epochs(levels: pl.DataFrame) -> pl.DataFrame:
    """Return EPOCH_REPORTS of some rows of LEVELS."""
    first = pl.min_horizontal("last_at", pl.max_horizontal("grain", "since"))
    return levels.group_by(PARTITION_EPOCH).agg(
        pl.col("grain").min().alias("began"),
        first.min().alias("first_at"),
        pl.col("last_at").max().alias("reported_at"),
        pl.col("closed").max().alias("handed_over"),
        pl.col("project").is_not_null().any().alias("named"),
    )


def _summarize_runs(records: pl.DataFrame) -> pl.DataFrame:
    """Return RUN_RECORDS of some rows of RECORDS."""
    spoken = pl.col("event") - micros(pl.col("span_s").fill_null(0.0))
    readable = records.filter(pl.col("problem").is_null())
    return readable.group_by(RUN).agg(
        pl.col("number").min().alias("run_number"),
        pl.col("at").min().alias("run_at"),
        pl.col("after").min().alias("first_after"),
        spoken.min().alias("run_from"),
        pl.col("event").max().alias("run_to"),
        pl.col("number").max().alias("last_number"),
        pl.col("span_s").get(pl.col("number").arg_max()).alias("run_span_s"),
    )


def _merge_epochs(found: pl.DataFrame) -> pl.DataFrame:
    return found.group_by(PARTITION_EPOCH).agg(
        pl.col("began", "first_at").min(), pl.col("reported_at", "handed_over", "named").max()
    )


def _merge_runs(found: pl.DataFrame) -> pl.DataFrame:
    return found.group_by(RUN).agg(
        pl.col("run_number", "run_at", "first_after", "run_from").min(),
        pl.col("run_span_s").get(pl.col("last_number").arg_max()),
        pl.col("run_to", "last_number").max(),
    )


def _order(epochs: pl.DataFrame) -> pl.DataFrame:
    """Order the epochs of each partition, and add when each was superseded.

    A new owner reports the whole backlog of a partition at once, or that there is none; queues that it doesn't report
    have no backlog. Epoch numbers that restart, as after an environment was recreated, are ordered after the earlier
    ones.
    """
    epoch, reported_at = pl.col("epoch"), pl.col("reported_at")
    silent = pl.col("first_at") - reported_at.cum_max().shift(1).over("partition")
    restarts = (epoch <= epoch.shift(1).over("partition")) & (silent > _RESTART_S * MICROS)
    later = pl.col("began").cum_min(reverse=True).shift(-1).over("partition")
    return (
        epochs.sort("partition", "first_at", "epoch", *RUN)
        .with_columns(restarts.fill_null(value=False).cast(pl.Int64).cum_sum().over("partition").alias("era"))
        .sort("partition", "era", "epoch", *RUN)
        .select(*PARTITION_EPOCH, "began", "handed_over", "named", later.alias("superseded"))
    )
