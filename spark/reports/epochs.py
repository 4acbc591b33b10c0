"""Finds what rows of several tenants share: epochs of partitions, runs of nodes, and the time that is covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import seconds
from evenlane.spark.reports.keys import SPELL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESTART_S = 60
"""Longer than the final and first reports of two successive owners can overlap."""


def epochs(levels: DataFrame) -> DataFrame:
    """Return a row per partition and epoch. `began` and `superseded` are the grains of its own and the next epoch's
    first report (null: no next one); `handed_over` says whether it made a final report; `named` whether it reported any
    queue.

    A new owner reports the whole backlog of a partition at once, or that there is none; queues that it doesn't report
    have no backlog. Epoch numbers that restart, as after an environment was recreated, are ordered after the earlier
    ones.
    """
    of_partition = Window.partitionBy("partition")
    in_time, in_order = of_partition.orderBy("first_at", "epoch"), of_partition.orderBy("era", "epoch")
    previous = in_time.rowsBetween(Window.unboundedPreceding, -1)
    silent_s = seconds(F.col("first_at")) - seconds(F.max("told_at").over(previous))
    restarts = (F.col("epoch") <= F.lag("epoch").over(in_time)) & (silent_s > _RESTART_S)
    return (
        levels.groupBy(*SPELL)
        .agg(
            F.min("grain").alias("began"),
            F.min(F.least("last_at", F.greatest("grain", "since"))).alias("first_at"),
            F.max("last_at").alias("told_at"),
            F.max("closed").alias("handed_over"),
            F.max(F.col("project").isNotNull()).alias("named"),
        )
        .withColumn("restarted", restarts.cast("int"))
        .withColumn("era", F.coalesce(F.sum("restarted").over(in_time), F.lit(0)))
        .withColumn("superseded", F.min("began").over(in_order.rowsBetween(1, Window.unboundedFollowing)))
        .select(*SPELL, "began", "handed_over", "named", "superseded")
    )


def runs(records: DataFrame) -> DataFrame:
    """Return a row per run of a node, with its first available record. `complete` if the run has no earlier record."""
    return (
        records.where(F.col("run").isNotNull())
        .groupBy("node", "run")
        .agg(
            F.min("number").alias("run_number"),
            F.min("at").alias("run_at"),
            (F.min("after") == 0).alias("complete"),
            F.max("event").alias("run_to"),
            F.max_by("span_s", "number").alias("run_span_s"),
        )
    )


def extent(records: DataFrame) -> DataFrame:
    """Return one row: `data_start`, the start of the time that the first record covers, and `data_end`, the event time
    of the last record.
    """
    readable = records.where(F.col("problem").isNull())
    spoken = F.col("event") - F.make_dt_interval(secs=F.coalesce("span_s", F.lit(0.0)).cast("decimal(18,6)"))
    return readable.agg(F.min(spoken).alias("data_start"), F.max("event").alias("data_end"))
