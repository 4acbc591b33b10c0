"""Forecasts a backlog: its trend, when it is empty, when a message will miss its target. The functions return
expressions for a frame with `backlog`, `arrival_rate` and `drain_rate`, `trend` (growth of the backlog in messages per
second), `oldest_s`, `target_s`, `covered_s` and `now` (unix µs).
"""

from __future__ import annotations

import polars as pl

from evenlane.spark.reports.expressions import micros

STEADY = 0.05
"""A trend is steady if it changes the backlog by less than this share of the throughput or of the backlog."""
_CHANCE = 2.0
"""Standard deviations of random throughput (Poisson): smaller changes are insignificant."""
SURE = 1.28
"""Standard errors on either side, for a band with 80 % confidence (normal distribution)."""
HORIZON_S = 86_400.0
"""Forecasts beyond this horizon are dropped: conditions will have changed by then."""
_FOREVER_S = 30 * 86_400.0


def trend_word() -> pl.Expr:
    passed = pl.min_horizontal("arrival_rate", "drain_rate") * pl.col("covered_s")
    much = pl.max_horizontal(1.0, STEADY * pl.col("backlog"), STEADY * passed, _CHANCE * passed.sqrt())
    by = pl.col("trend") * pl.col("covered_s")
    return (
        pl.when(by > much)
        .then(pl.lit("growing"))
        .when(by < -much)
        .then(pl.lit("shrinking"))
        .otherwise(pl.lit("steady"))
    )


def empty_word() -> pl.Expr:
    return (
        pl.when(pl.col("backlog") == 0).then(pl.lit("empty"))
        .when(pl.col("covered_s") <= 0).then(pl.lit("unknown"))
        .when(pl.col("backlog") > -pl.col("trend") * _FOREVER_S).then(pl.lit("never"))
        .otherwise(pl.lit("expected"))
    )  # fmt: skip


def empty_s(net: pl.Expr) -> pl.Expr:
    """Return the time until the backlog is empty at this net rate; null: never."""
    gone = (net > 0) & (pl.col("backlog") <= net * _FOREVER_S) & (pl.col("covered_s") > 0)
    return pl.when(pl.col("backlog") == 0).then(0.0).when(gone).then(pl.col("backlog") / net)


def late_by_s() -> pl.Expr:
    over = pl.col("oldest_s") - pl.col("target_s")
    return pl.when(over > 0).then(over)


def late_since() -> pl.Expr:
    return pl.col("now") - micros(late_by_s())


def miss_at() -> pl.Expr:
    """Return when the first message will exceed its target; null if none will, or one already does.

    The queue is served from its head, which has waited for `oldest`; its tail has just arrived. At the drain rate d,
    the message at share f of a backlog B leaves in f*B/d, and has then waited (1 - f)*oldest + f*B/d. The first to
    exceed the target T is at f = (T - oldest) / (B/d - oldest). If there is none, but the backlog grows by g per
    second, messages that arrive in (T*d - B) / g seconds will exceed it, after T more.
    """
    drain, oldest, target = pl.col("drain_rate"), pl.col("oldest_s").fill_null(0.0), pl.col("target_s")
    backlog = pl.col("backlog")
    left = target - oldest
    all_of_it = pl.when(drain > 0).then(backlog / drain)
    here = (
        pl.when(all_of_it.is_null()).then(left).when(all_of_it > target).then(left / (all_of_it - oldest) * all_of_it)
    )
    growing = pl.when(pl.col("trend_word") == "growing").then((target * drain - backlog) / pl.col("trend") + target)
    due = pl.when((backlog > 0) & (left >= 0)).then(pl.coalesce(here, growing))
    return pl.when(due <= HORIZON_S).then(pl.col("now") + micros(due))
