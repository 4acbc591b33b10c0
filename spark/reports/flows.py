"""Computes growth of counters and backlogs per grain, by a law of conservation that holds across handoffs.

See docs/reference/report-figures.md.

When a node takes over a partition, its `arrived` counts the partition's backlog again. But arrivals equal what ended
plus what is left. In any period, arrivals = growth of ended messages (handled, retried, dead, expired, dropped; all
epochs)
+ growth of waiting messages (by the latest epoch) and messages in flight (of each epoch except those that ended without
a final report).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.records.meter_record import REFRESH
from evenlane.spark.reports.columns import seconds, total
from evenlane.spark.reports.grains import EPOCH, SPELL
from evenlane.spark.reports.schemas import CUMULATIVE, QUEUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

    from evenlane.spark.reports.grains import Grains

ENDED = ("handled", "retried", "dead", "expired", "dropped")
_LEVELS = ("backlog", "in_flight")
SUMS = (*CUMULATIVE, "uncounted", *_LEVELS)
WHOLE = ""
"""Value of the column `priority` for all of a tenant's priorities together. No priority has this name."""
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


def queues(levels: DataFrame) -> DataFrame:
    """Return the rows of queues."""
    return levels.where(F.col("project").isNotNull())


def runs(records: DataFrame) -> DataFrame:
    """Return a row per run of a node, with its first available record. `complete` if the run has no earlier record."""
    return (
        records.where(F.col("run").isNotNull())
        .groupBy("node", "run")
        .agg(
            F.min("number").alias("run_number"),
            F.min("at").alias("run_at"),
            (F.min("after") == 0).alias("complete"),
        )
    )


def counts_from_0(first_number: Column) -> Column:
    """Whether a queue (or bucket) that was first seen in this record was at 0 before. That is so in three cases: its
    run's first record is available; its epoch began no earlier than the run's first available record; or it was first
    seen so many records after that one that an older queue would have been reported before (REFRESH is doubled for
    nodes that need many records per interval).
    """
    return F.coalesce(
        F.col("complete") | (F.col("since") >= F.col("run_at")) | (first_number > F.col("run_number") + 2 * REFRESH),
        F.lit(False),
    )


def flows(grains: Grains) -> DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and grain with reports: the growth of each of SUMS."""
    of_queue = changes(grains).groupBy(*QUEUE, "grain")
    grown = [*CUMULATIVE, "came", *_LEVELS]
    cut = F.max("killed") & (F.sum("came") < 0)
    counted = of_queue.agg(*(F.sum(name).alias(name) for name in grown), cut.alias("cut")).withColumns(
        {
            "arrived": F.when(F.col("cut"), 0).otherwise(F.col("came")),
            "uncounted": F.when(F.col("cut"), -F.col("came")).otherwise(0),
        }
    )
    both = counted.withColumn("priority", F.explode(F.array("priority", F.lit(WHOLE))))
    return both.groupBy("project", "priority", "grain").agg(*(F.sum(name).alias(name) for name in SUMS))


def changes(grains: Grains) -> DataFrame:
    """Return a row per queue, epoch and grain in which it was reported or superseded: the growth of counters, `backlog`
    and `in_flight` since the previous row, and `came`, the arrivals that follow from it. `killed` if a later epoch took
    over without a final report.
    """
    order = Window.partitionBy(*EPOCH).orderBy("grain")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    columns = (
        _with_its_end(grains.levels)
        .join(runs(grains.records), ["node", "run"], "left")
        .withColumns({name: F.max(name).over(so_far) for name in CUMULATIVE})
    )
    over = F.col("grain") >= F.col("superseded")
    columns = columns.withColumns(
        {
            "killed": F.coalesce(over & ~F.col("handed_over"), F.lit(False)),
            "backlog": F.when(over, 0).otherwise(F.col("backlog")),
            "in_flight": F.when(over & ~F.col("handed_over"), 0).otherwise(F.col("in_flight")),
            "base": counts_from_0(F.first("first_number").over(so_far)),
        }
    )
    return _compute_growth(columns, order)


def _compute_growth(columns: DataFrame, order: WindowSpec) -> DataFrame:
    columns = columns.withColumn("waiting", F.col("backlog") + F.col("in_flight"))

    def growth(name: str) -> Column:
        first = F.when(F.col("base"), 0).otherwise(F.col(name))
        return F.col(name) - F.coalesce(F.lag(name).over(order), first)

    found = columns.select(
        *EPOCH, "grain", "killed",
        *(growth(name).alias(name) for name in (*CUMULATIVE, "waiting")),
        *((F.col(name) - F.coalesce(F.lag(name).over(order), F.lit(0))).alias(name) for name in _LEVELS),
    )  # fmt: skip
    return found.withColumn("came", total([*ENDED, "waiting"]))


def _with_its_end(levels: DataFrame) -> DataFrame:
    """Add a row at the grain in which the next epoch began, unless there is one: the old epoch's backlog ends there."""
    order = Window.partitionBy(*EPOCH).orderBy("grain")
    known = queues(levels).join(epochs(levels).drop("began", "named"), [*SPELL])
    grain, end, following = F.col("grain"), F.col("superseded"), F.col("following")
    wanted = (grain < end) & (following.isNull() | (following > end))
    both = F.explode(F.when(wanted, F.array("grain", "superseded")).otherwise(F.array("grain")))
    return known.withColumn("following", F.lead("grain").over(order)).withColumn("grain", both).drop("following")
