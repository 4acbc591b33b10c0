"""Finds tenants that took more than their due share, and the effect on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import ratio, shape
from evenlane.spark.reports.schemas import NOISY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MUCH = 1.5
"""A noisy tenant took at least this many times its due share."""
AT_LEAST = 0.1
"""Minimum excess over the due share, as a share of the total: a smaller one affects nobody."""
CROWDED = ("fairness", "handlers_busy", "headroom")
"""Wait reasons while other tenants use the handlers."""
_MOSTLY = 0.5


def noisy(tenants: DataFrame) -> DataFrame:
    """Compute NOISY from TENANTS. Nodes report the due share (max-min fair by weight: a tenant that leaves handlers
    idle is due no more than it took). Without reports, it is the share by weight among tenants with any activity.
    """
    active = tenants.where((F.col("attempts") > 0) | (F.col("backlog") > 0))
    weights = active.groupBy("window_start").agg(F.sum("weight").alias("weights"))
    judged = active.join(weights, "window_start").withColumn("due", _due()).withColumn("noisy", _is_noisy())
    others = judged.where(~F.col("noisy")).groupBy("window_start").agg(*_quiet())
    found = judged.where("noisy").drop("late").join(others, "window_start", "left")
    found = found.fillna(dict.fromkeys(("quiet", "quiet_late", "quiet_crowded"), 0)).fillna({"suffered": False})
    return shape(found.withColumn("sentence", _sentence()), NOISY)


def _due() -> Column:
    estimate = ratio(F.col("share_handling"), F.col("got_over_due"))
    return F.coalesce(estimate, ratio(F.col("weight"), F.col("weights")))


def _is_noisy() -> Column:
    # quick handlers are in flight only by chance at the moments when a node samples
    held = F.when(F.col("in_flight_mean") >= 1, F.col("share_in_flight"))
    took = F.greatest(held, "share_handling")
    return F.coalesce((took >= MUCH * F.col("due")) & (took >= F.col("due") + AT_LEAST), F.lit(False))


def _quiet() -> list[Column]:
    shares = f"filter(causes, each -> each.cause in {CROWDED})"
    share = F.expr(f"aggregate({shares}, 0D, (so_far, each) -> so_far + each.share)")
    crowded = (share > _MOSTLY) & (F.col("backlog") > 0)
    return [
        F.count("*").alias("quiet"),
        F.median("wait_p95_s").alias("quiet_p95_s"),
        F.max("wait_p95_s").alias("quiet_worst_p95_s"),
        F.count_if(F.col("late")).alias("quiet_late"),
        F.count_if(crowded).alias("quiet_crowded"),
        F.max(F.col("late") & crowded).alias("suffered"),
    ]


def _sentence() -> Column:
    took = F.format_string(
        "Had %.0f %% of the handling time and %.0f %% of the messages in flight, and %.0f %% was due to it; ",
        *(F.coalesce(F.col(name), F.lit(0.0)) * 100 for name in ("share_handling", "share_in_flight", "due")),
    )
    harm = (
        F.when(F.col("quiet") == 0, "there were no others.")
        .when(F.col("suffered"), "others were late and waited for handlers.")
        .when(F.col("quiet_crowded") > 0, "others waited for handlers, but none of these was late.")
        .otherwise("the others didn't wait for it.")
    )
    return F.concat(took, harm)
