"""Forecasts a backlog: its trend, when it is empty, when a message will miss its target. The functions return columns
of a frame with `backlog`, `arrival_rate` and `drain_rate`, `trend` (growth of the backlog in messages per second),
`oldest_s`, `target_s`, `covered_s` and `now`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import instant, seconds

STEADY = 0.05
"""A trend is steady if it changes the backlog by less than this share of the throughput or of the backlog."""
_CHANCE = 2.0
"""Standard deviations of random throughput (Poisson): smaller changes are insignificant."""
SURE = 1.28
"""Standard errors on either side, for a band with 80 % confidence (normal distribution)."""
HORIZON_S = 86_400.0
"""Forecasts beyond this horizon are dropped: conditions will have changed by then."""
_FOREVER_S = 30 * 86_400.0


def trend_word() -> Column:
    passed = F.least(F.col("arrival_rate"), F.col("drain_rate")) * F.col("covered_s")
    much = F.greatest(F.lit(1.0), STEADY * F.col("backlog"), STEADY * passed, _CHANCE * F.sqrt(passed))
    by = F.col("trend") * F.col("covered_s")
    return F.when(by > much, "growing").when(by < -much, "shrinking").otherwise("steady")


def empty_word() -> Column:
    return (
        F.when(F.col("backlog") == 0, "empty")
        .when(F.col("covered_s") <= 0, "unknown")
        .when(F.col("backlog") > -F.col("trend") * _FOREVER_S, "never")
        .otherwise("expected")
    )


def empty_s(net: Column) -> Column:
    """Return the time until the backlog is empty at this net rate; null: never."""
    gone = F.when((net > 0) & (F.col("backlog") <= net * _FOREVER_S), F.col("backlog") / net)
    return F.when(F.col("backlog") == 0, 0.0).otherwise(F.when(F.col("covered_s") > 0, gone))


def late_by_s() -> Column:
    over = F.col("oldest_s") - F.col("target_s")
    return F.when(over > 0, over)


def late_since() -> Column:
    return F.when(late_by_s() > 0, instant(seconds(F.col("now")) - late_by_s()))


def miss_at() -> Column:
    """Return when the first message will exceed its target; null if none will, or one already does.

    The queue is served from its head, which has waited for `oldest`; its tail has just arrived. At the drain rate d,
    the message at share f of a backlog B leaves in f*B/d, and has then waited (1 - f)*oldest + f*B/d. The first to
    exceed the target T is at f = (T - oldest) / (B/d - oldest). If there is none, but the backlog grows by g per
    second, messages that arrive in (T*d - B) / g seconds will exceed it, after T more.
    """
    drain, oldest, target = F.col("drain_rate"), F.coalesce("oldest_s", F.lit(0.0)), F.col("target_s")
    left = target - oldest
    all_of_it = F.when(drain > 0, F.col("backlog") / drain)
    here = F.when(all_of_it.isNull(), left).when(all_of_it > target, left / (all_of_it - oldest) * all_of_it)
    growing = F.when(F.col("trend_word") == "growing", (target * drain - F.col("backlog")) / F.col("trend") + target)
    due = F.when((F.col("backlog") > 0) & (left >= 0), F.coalesce(here, growing))
    return F.when(due <= HORIZON_S, instant(seconds(F.col("now")) + due))
