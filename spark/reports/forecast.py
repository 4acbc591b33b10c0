"""Where a backlog is going: trend, when it is gone, when somebody waits too long. Columns of a frame that has
`backlog`, `arrival_rate` and `drain_rate`, `trend` (messages a second that the backlog grows by), `oldest_s`,
`target_s`, `covered_s` and `now`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import instant, seconds

STEADY = 0.05
"""A trend that changes the backlog by less than this share of what passes through, or of itself, in the window."""
_CHANCE = 2.0
"""Standard deviations of what passes by chance (Poisson): of few messages a change by less says nothing."""
SURE = 1.28
"""Standard errors on either side for a band that holds in four of five cases (normal distribution)."""
HORIZON_S = 86_400.0
"""What is foreseen for later isn't told: by then all will be different."""
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
    """At this net rate; null: never."""
    gone = F.when((net > 0) & (F.col("backlog") <= net * _FOREVER_S), F.col("backlog") / net)
    return F.when(F.col("backlog") == 0, 0.0).otherwise(F.when(F.col("covered_s") > 0, gone))


def late_by_s() -> Column:
    over = F.col("oldest_s") - F.col("target_s")
    return F.when(over > 0, over)


def late_since() -> Column:
    return F.when(late_by_s() > 0, instant(seconds(F.col("now")) - late_by_s()))


def miss_at() -> Column:
    """When the first message will wait too long; null if none will, or one does already.

    The queue is served from its head, which waits since `oldest`; its tail has just come. At the drain rate d the
    message at share f of a backlog B leaves in f*B/d, and has then waited (1 - f)*oldest + f*B/d: the first to be over
    the target T is at f = (T - oldest) / (B/d - oldest). If none of these is, but the backlog grows by g a second,
    those that come in (T*d - B) / g seconds will be, T after that.
    """
    drain, oldest, target = F.col("drain_rate"), F.coalesce("oldest_s", F.lit(0.0)), F.col("target_s")
    left = target - oldest
    all_of_it = F.when(drain > 0, F.col("backlog") / drain)
    here = F.when(all_of_it.isNull(), left).when(all_of_it > target, left / (all_of_it - oldest) * all_of_it)
    growing = F.when(F.col("trend_word") == "growing", (target * drain - F.col("backlog")) / F.col("trend") + target)
    due = F.when((F.col("backlog") > 0) & (left >= 0), F.coalesce(here, growing))
    return F.when(due <= HORIZON_S, instant(seconds(F.col("now")) + due))
