"""Finds tenants that took more than their due share, and the effect on the others."""

from __future__ import annotations

import polars as pl

from evenlane.spark.reports.expressions import ratio
from evenlane.spark.reports.schemas import NOISY

MUCH = 1.5
"""A noisy tenant took at least this many times its due share."""
AT_LEAST = 0.1
"""Minimum excess over the due share, as a share of the total: a smaller one affects nobody."""
CROWDED = ("fairness", "handlers_busy", "headroom")
"""Wait reasons while other tenants use the handlers."""
NEEDED = (
    "window_start", "window_end", "project", "attempts", "backlog", "weight", "share_in_flight", "share_handling",
    "got_over_due", "in_flight_mean", "wait_p95_s", "late", "causes",
)  # fmt: skip
"""Columns of TENANTS that `noisy` needs."""
_MOSTLY = 0.5


def noisy(tenants: pl.LazyFrame) -> pl.LazyFrame:
    """Compute NOISY from all tenants of some windows. Nodes report the due share (max-min fair by weight: a tenant that
    leaves handlers idle is due no more than it took). Without reports, it is the share by weight among tenants with any
    activity.
    """
    weights = pl.col("weight").sum().over("window_start")
    judged = (
        tenants.select(NEEDED)
        .filter((pl.col("attempts") > 0) | (pl.col("backlog") > 0))
        .with_columns(pl.coalesce(_estimate_due(), ratio(pl.col("weight"), weights)).alias("due"))
        .with_columns(_is_noisy().alias("noisy"))
    )
    others = judged.filter(~pl.col("noisy")).group_by("window_start").agg(_quiet())
    return (
        judged.filter("noisy")
        .join(others, on="window_start", how="left")
        .with_columns(
            pl.col("quiet", "quiet_late", "quiet_crowded").fill_null(0).cast(pl.Int64),
            pl.col("suffered").fill_null(value=False),
        )
        .with_columns(_sentence().alias("sentence"))
        .select(NOISY.names)
    )


def _estimate_due() -> pl.Expr:
    return ratio(pl.col("share_handling"), pl.col("got_over_due"))


def _is_noisy() -> pl.Expr:
    # quick handlers are in flight only by chance at the moments when a node samples
    held = pl.when(pl.col("in_flight_mean") >= 1).then(pl.col("share_in_flight"))
    took, due = pl.max_horizontal(held, "share_handling"), pl.col("due")
    return ((took >= MUCH * due) & (took >= due + AT_LEAST)).fill_null(value=False)


def _quiet() -> list[pl.Expr]:
    cause, share = (pl.element().struct.field(name) for name in ("cause", "share"))
    shares = pl.col("causes").list.eval(pl.when(cause.is_in(CROWDED)).then(share).otherwise(0.0)).list.sum()
    crowded = ((shares > _MOSTLY) & (pl.col("backlog") > 0)).fill_null(value=False)
    waited = pl.col("wait_p95_s")
    return [
        pl.len().alias("quiet"),
        waited.median().alias("quiet_p95_s"),
        waited.max().alias("quiet_worst_p95_s"),
        pl.col("late").sum().alias("quiet_late"),
        crowded.sum().alias("quiet_crowded"),
        (pl.col("late") & crowded).any().alias("suffered"),
    ]


def _sentence() -> pl.Expr:
    took = pl.format(
        "Had {} % of the handling time and {} % of the messages in flight, and {} % was due to it; ",
        *(
            (pl.col(each).fill_null(0.0) * 100).round(mode="half_away_from_zero").cast(pl.Int64)
            for each in ("share_handling", "share_in_flight", "due")
        ),
    )
    harm = (
        pl.when(pl.col("quiet") == 0)
        .then(pl.lit("there were no others."))
        .when("suffered")
        .then(pl.lit("others were late and waited for handlers."))
        .when(pl.col("quiet_crowded") > 0)
        .then(pl.lit("others waited for handlers, but none of these was late."))
        .otherwise(pl.lit("the others didn't wait for it."))
    )
    return took + harm
