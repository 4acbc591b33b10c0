"""Computes percentiles of waiting times from the nodes' histogram buckets."""

from __future__ import annotations

import polars as pl

from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS_S
from evenlane.spark.reports.expressions import floor_to
from evenlane.spark.reports.flows import counts_from_0, with_whole
from evenlane.spark.reports.keys import WINDOW, number_queues

_QUANTILES = {"wait_p50_s": 0.5, "wait_p95_s": 0.95, "wait_p99_s": 0.99}


def wait_times(waits: pl.DataFrame, levels: pl.DataFrame, window_s: int) -> pl.DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and window in which a wait ended: its percentiles and maximum.

    Waits are assumed to be evenly distributed within a bucket: the error is at most a bucket (19 %), typically half of
    that.
    """
    ended, lower, top = pl.col("ended"), pl.col("lower"), pl.col("top")
    counted = (
        _by_bucket(waits, window_s)
        .join(_longest(levels, window_s), on=WINDOW, how="left")
        .join(_bounds(), on="bucket", how="left")
        .with_columns(_top())
        .sort(*WINDOW, "bucket")
        .with_columns(ended.cum_sum().over(WINDOW).alias("up_to"), ended.sum().over(WINDOW).alias("all"))
    )

    def at(share: float) -> pl.Expr:
        """Interpolate in the first bucket that reaches the share; the result is the minimum of all that do."""
        wanted, up_to = share * pl.col("all"), pl.col("up_to")
        within = pl.max_horizontal(0.0, (wanted - (up_to - ended)) / ended)
        return pl.when(up_to >= wanted).then(lower + within * (top - lower))

    return (
        counted.with_columns(at(share).alias(name) for name, share in _QUANTILES.items())
        .group_by(WINDOW)
        .agg(pl.col(list(_QUANTILES)).min(), top.max().alias("wait_max_s"))
    )


def _bounds() -> pl.DataFrame:
    """Return the bounds of each bucket, in s; the last one has no upper bound."""
    return pl.DataFrame(
        {"bucket": range(len(WAIT_BOUNDS_S) + 1), "lower": [0.0, *WAIT_BOUNDS_S], "upper": [*WAIT_BOUNDS_S, None]},
        schema={"bucket": pl.Int32, "lower": pl.Float64, "upper": pl.Float64},
    )


def _top() -> pl.Expr:
    """Return the longest wait of a bucket, if reported; it is never below the bucket's lower bound."""
    longest, lower, upper = pl.col("longest_s"), pl.col("lower"), pl.col("upper")
    estimate = pl.min_horizontal(upper, pl.max_horizontal(longest, lower))
    return pl.when(longest.is_null()).then(pl.coalesce(upper, lower)).otherwise(estimate).alias("top")


def _by_bucket(waits: pl.DataFrame, window_s: int) -> pl.DataFrame:
    """Return how many waits ended in each bucket. Counts are cumulative, so that a window's first and last suffice.
    Rows may contain a grain several times, as tasks found it: they need not be merged before.
    """
    numbered = number_queues(waits)
    queues = numbered.group_by("queue").agg(
        pl.col("project", "priority", "run_at", "run_number", "complete").first(), pl.col("since").min()
    )
    line, highest = ("queue", "bucket"), pl.col("highest")
    again = pl.all_horizontal((pl.col(name) == pl.col(name).shift(1)).fill_null(value=False) for name in line)
    first = pl.when(counts_from_0(pl.col("first_number"))).then(0).otherwise(pl.col("lowest"))
    found = (
        numbered.select("queue", floor_to(pl.col("grain"), window_s).alias("window_start"), "waits")
        .explode("waits")
        .unnest("waits")
        .group_by(*line, "window_start")
        .agg(
            pl.col("first_number").min(),
            pl.coalesce("first_count", "count").min().alias("lowest"),  # older tables have only the last
            pl.col("count").max().alias("highest"),
        )
        .sort(*line, "window_start")
        .with_columns(highest.cum_max().over(line))
        .join(queues, on="queue", maintain_order="left")
        .with_columns((highest - pl.when(again).then(highest.shift(1)).otherwise(first)).alias("ended"))
        .filter(pl.col("ended") > 0)
    )
    return with_whole(found.select(*WINDOW, "bucket", "ended")).group_by(*WINDOW, "bucket").agg(pl.col("ended").sum())


def _longest(levels: pl.DataFrame, window_s: int) -> pl.DataFrame:
    window = floor_to(pl.col("grain"), window_s).alias("window_start")
    return with_whole(levels).group_by("project", "priority", window).agg(pl.col("longest_s").max())
