"""Computes levels at the end of each window, whether they were reported in it or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import add_seconds, floor_to, instant, ratio, seconds
from evenlane.spark.reports.flows import WHOLE, queues
from evenlane.spark.reports.grains import EPOCH, SPELL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.grains import Grains


def extent(records: DataFrame) -> DataFrame:
    """Return one row: `data_start`, the start of the time that the first record covers, and `data_end`, the event time
    of the last record.
    """
    readable = records.where(F.col("problem").isNull())
    spoken = F.col("event") - F.make_dt_interval(secs=F.coalesce("span_s", F.lit(0.0)).cast("decimal(18,6)"))
    return readable.agg(F.min(spoken).alias("data_start"), F.max("event").alias("data_end"))


def covered(window_s: int) -> Column:
    """Return the seconds of a window that are covered by records, for a frame with `extent` and `window_start`."""
    start = F.greatest("window_start", "data_start")
    end = F.least(add_seconds(F.col("window_start"), window_s), F.col("data_end"))
    return F.greatest(F.lit(0.0), seconds(end) - seconds(start))


def windows(flows: DataFrame, ends: DataFrame, window_s: int) -> DataFrame:
    """Return a row per tenant, priority and window: from the first window in which the priority was reported to the
    last window of all data. A backlog that isn't reported is unchanged.
    """
    first = floor_to(F.min("grain"), window_s)
    last = floor_to(F.col("data_end"), window_s)
    step = F.expr(f"INTERVAL {window_s} SECONDS")
    return (
        flows.groupBy("project", "priority")
        .agg(first.alias("first"))
        .crossJoin(F.broadcast(ends))
        .select(
            "project", "priority", "data_start", "data_end",
            F.explode(F.sequence(F.col("first"), F.greatest("first", last), step)).alias("window_start"),
        )
    )  # fmt: skip


def heads(grains: Grains, spells: DataFrame, ends: DataFrame, window_s: int) -> DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and window with a backlog at its end. `head_at` is since when the
    oldest message has waited. A queue's last report holds until its next one, or until its partition's next epoch.
    """
    head = F.when(F.col("backlog") > 0, instant(seconds(F.col("last_at")) - F.col("oldest_s")))
    order = Window.partitionBy(*EPOCH).orderBy("window_start")
    step = F.expr(f"INTERVAL {window_s} SECONDS")
    grouped = (
        queues(grains.levels)
        .withColumn("head", head)
        .groupBy(*EPOCH, floor_to(F.col("grain"), window_s).alias("window_start"))
        .agg(F.max_by("head", "number").alias("head_at"))
        .join(spells, [*SPELL])
        .crossJoin(F.broadcast(ends))
    )
    # The windows from the one of the report up to, but not including, the one where another report holds.
    holds_to = F.least(
        F.coalesce(F.lead("window_start").over(order), add_seconds(floor_to(F.col("data_end"), window_s), window_s)),
        F.coalesce(
            floor_to(F.col("superseded"), window_s), add_seconds(floor_to(F.col("data_end"), window_s), window_s)
        ),
    )
    return (
        grouped.withColumn("holds_to", holds_to)
        .where(F.col("head_at").isNotNull() & (F.col("holds_to") > F.col("window_start")))
        .withColumn("window_start", F.explode(F.sequence(F.col("window_start"), F.col("holds_to") - step, step)))
        .withColumn("priority", F.explode(F.array("priority", F.lit(WHOLE))))
        .groupBy("project", "priority", "window_start")
        .agg(F.min("head_at").alias("head_at"))
    )


def topics(levels: DataFrame, window_s: int) -> DataFrame:
    """Return a row per tenant and window: the quota and weight last reported, and share got over share due, weighted by
    the nodes' parts of the quota.
    """
    part = F.coalesce("may_use", F.lit(1.0))
    last = {name: F.max_by(name, F.when(F.col(name).isNotNull(), F.col("last_at"))) for name in ("qps", "weight")}
    judged = F.col("fairness").isNotNull()
    return (
        queues(levels)
        .groupBy("project", floor_to(F.col("grain"), window_s).alias("window_start"))
        .agg(
            *(column.alias(name) for name, column in last.items()),
            ratio(F.sum(F.when(judged, part * F.col("fairness"))), F.sum(F.when(judged, part))).alias("got_over_due"),
        )
    )  # fmt: skip
