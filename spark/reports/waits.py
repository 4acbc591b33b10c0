"""Computes percentiles of waiting times from the nodes' histogram buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS_S
from evenlane.spark.reports.columns import floor_to
from evenlane.spark.reports.flows import WHOLE, counts_from_0, queues, runs
from evenlane.spark.reports.grains import EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.grains import Grains

_QUANTILES = {"wait_p50_s": 0.5, "wait_p95_s": 0.95, "wait_p99_s": 0.99}
_KEY = ("project", "priority", "window_start")


def wait_times(grains: Grains, window_s: int) -> DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and window in which a wait ended: its percentiles and maximum.

    Waits are assumed to be evenly distributed within a bucket: the error is at most a bucket (19 %), typically half of
    that.
    """
    counted = _by_bucket(grains, window_s).join(_longest(grains.levels, window_s), [*_KEY], "left")
    order = Window.partitionBy(*_KEY).orderBy("bucket")
    counted = counted.withColumns(
        {
            "up_to": F.sum("ended").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "all": F.sum("ended").over(Window.partitionBy(*_KEY)),
        }
    )
    return counted.groupBy(*_KEY).agg(
        *(F.min(_at(share)).alias(name) for name, share in _QUANTILES.items()), F.max(_top()).alias("wait_max_s")
    )


def _doubles(values: Sequence[float]) -> Column:
    """Return an array, made in one call to Java: `F.lit` makes one or more for each value."""
    return F.expr(f"array({', '.join(f'{value!r}D' for value in values)})")


def _lower() -> Column:
    return F.get(_doubles([0.0, *WAIT_BOUNDS_S]), F.col("bucket"))


def _top() -> Column:
    """Return the longest wait of a bucket, if reported; it is never below the bucket's lower bound."""
    upper = F.get(_doubles(WAIT_BOUNDS_S), F.col("bucket"))
    estimate = F.least(upper, F.greatest("longest_s", _lower()))
    return F.when(F.col("longest_s").isNull(), F.coalesce(upper, _lower())).otherwise(estimate)


def _at(share: float) -> Column:
    """Interpolate in the first bucket that reaches the share; the result is the minimum of all that do."""
    wanted = share * F.col("all")
    within = (wanted - (F.col("up_to") - F.col("ended"))) / F.col("ended")
    return F.when(F.col("up_to") >= wanted, _lower() + F.greatest(F.lit(0.0), within) * (_top() - _lower()))


def _by_bucket(grains: Grains, window_s: int) -> DataFrame:
    """Return how many waits ended in each bucket. Counts are cumulative, so that a window's first and last suffice.
    Rows may contain a grain several times, as tasks found it: they need not be merged before.
    """
    order = Window.partitionBy(*EPOCH, "bucket").orderBy("window_start")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since_0 = counts_from_0(F.first("first_number").over(so_far))
    estimate = (
        grains.waits.groupBy(*EPOCH, "bucket", floor_to(F.col("grain"), window_s).alias("window_start"))
        .agg(
            F.min("since").alias("since"),
            F.min("first_number").alias("first_number"),
            F.min(F.coalesce("first_count", "count")).alias("lowest"),  # older tables have only the last
            F.max("count").alias("highest"),
        )
        .join(F.broadcast(runs(grains.records)), ["node", "run"], "left")
        .withColumn("highest", F.max("highest").over(so_far))
        .withColumn("first", F.when(since_0, 0).otherwise(F.first("lowest").over(so_far)))
        .withColumn("ended", F.col("highest") - F.coalesce(F.lag("highest").over(order), "first"))
        .where(F.col("ended") > 0)
    )
    return _both(estimate).groupBy("project", "priority", "window_start", "bucket").agg(F.sum("ended").alias("ended"))


def _longest(levels: DataFrame, window_s: int) -> DataFrame:
    window = floor_to(F.col("grain"), window_s).alias("window_start")
    return _both(queues(levels)).groupBy("project", "priority", window).agg(F.max("longest_s").alias("longest_s"))


def _both(frame: DataFrame) -> DataFrame:
    return frame.withColumn("priority", F.explode(F.array("priority", F.lit(WHOLE))))
