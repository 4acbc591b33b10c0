"""Computes levels at the end of each window, whether they were reported in it or not."""

from __future__ import annotations

import polars as pl

from evenlane.spark.reports.expressions import MICROS, Extent, floor_to, micros, ratio, seconds
from evenlane.spark.reports.flows import with_whole
from evenlane.spark.reports.keys import LINE, WINDOW


def covered(ends: Extent, window_s: int) -> pl.Expr:
    """Return the seconds of a window that are covered by records, for a frame with `window_start`."""
    start = pl.max_horizontal("window_start", ends.start)
    end = pl.min_horizontal(pl.col("window_start") + window_s * MICROS, ends.end)
    return pl.max_horizontal(0.0, seconds(end - start))


def windows(flows: pl.DataFrame, ends: Extent, window_s: int) -> pl.DataFrame:
    """Return a row per tenant, priority and window: from the first window in which the priority was reported to the
    last window of all data. A backlog that isn't reported is unchanged.
    """
    last, step = floor_to(ends.end, window_s), window_s * MICROS
    first = floor_to(pl.col("grain").min(), window_s)
    return (
        flows.group_by(LINE)
        .agg(first.alias("first"))
        .select(
            "project", "priority",
            pl.int_ranges("first", pl.max_horizontal("first", last) + step, step).alias("window_start"),
        )
        .explode("window_start")
    )  # fmt: skip


def heads(levels: pl.DataFrame, ends: Extent, window_s: int) -> pl.DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and window with a backlog at its end. `head_at` is since when the
    oldest message has waited. A queue's last report holds until its next one, or until its partition's next epoch.
    """
    step, after_last = window_s * MICROS, floor_to(ends.end, window_s) + window_s * MICROS
    head = pl.when(pl.col("backlog") > 0).then(pl.col("last_at") - micros(pl.col("oldest_s")))
    next_report = pl.col("window_start").shift(-1).over("queue").fill_null(after_last)
    next_epoch = floor_to(pl.col("superseded"), window_s).fill_null(after_last)
    return (
        with_whole(
            levels.sort("queue", "number")
            .group_by("queue", floor_to(pl.col("grain"), window_s).alias("window_start"), maintain_order=True)
            .agg(pl.col("project", "priority", "superseded").first(), head.last().alias("head_at"))
            .sort("queue", "window_start")
            # The windows from the one of the report up to, but not including, the one where another report holds.
            .with_columns(pl.min_horizontal(next_report, next_epoch).alias("holds_to"))
            .filter(pl.col("head_at").is_not_null() & (pl.col("holds_to") > pl.col("window_start")))
            .with_columns(pl.int_ranges("window_start", "holds_to", step).alias("window_start"))
            .explode("window_start")
            .select(*WINDOW, "head_at")
        )
        .group_by(WINDOW)
        .agg(pl.col("head_at").min())
    )


def topics(levels: pl.DataFrame, window_s: int) -> pl.DataFrame:
    """Return a row per tenant and window: the quota and weight last reported, and share got over share due, weighted by
    the nodes' parts of the quota.
    """
    part = pl.col("may_use").fill_null(1.0).filter(pl.col("fairness").is_not_null())
    got = (pl.col("may_use").fill_null(1.0) * pl.col("fairness")).sum()
    return (
        levels.sort("last_at", nulls_last=False)
        .group_by("project", floor_to(pl.col("grain"), window_s).alias("window_start"), maintain_order=True)
        .agg(pl.col("qps", "weight").drop_nulls().last(), ratio(got, part.sum()).alias("got_over_due"))
    )
