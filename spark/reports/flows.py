"""How counters and backlogs grew, grain by grain: the law of conservation over hand-overs.

See docs/reference/report-figures.md.

`arrived` counts anew what a node finds as it takes a partition over. But what came is what went and what is left: in
any time, arrivals = growth of what ended (handled, retried, dead, expired, dropped; all epochs) + growth of what waits
(as the latest epoch has it) and is in flight (of each epoch but one that ended without a last word).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.wire.meter_record import REFRESH
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
"""In the column `priority`: all of the tenant's. No priority has this name."""
_ANEW_S = 60
"""Longer than the last words of two owners cross each other."""


def epochs(levels: DataFrame) -> DataFrame:
    """A row for each partition and epoch: `began` and `superseded` are the grains in which it, and the next one, said
    the first word (null: there is no next one); `handed_over` whether it said its last; `named` whether it told of a
    queue.

    A new owner tells all that waits in a partition at once, or that nothing does: what it doesn't name isn't there any
    more. Numbers of epochs that begin anew, as of an environment that was, come after those that were there.
    """
    of_partition = Window.partitionBy("partition")
    in_time, in_order = of_partition.orderBy("first_at", "epoch"), of_partition.orderBy("era", "epoch")
    former = in_time.rowsBetween(Window.unboundedPreceding, -1)
    silent_s = seconds(F.col("first_at")) - seconds(F.max("told_at").over(former))
    anew = (F.col("epoch") <= F.lag("epoch").over(in_time)) & (silent_s > _ANEW_S)
    return (
        levels.groupBy(*SPELL)
        .agg(
            F.min("grain").alias("began"),
            F.min(F.least("last_at", F.greatest("grain", "since"))).alias("first_at"),
            F.max("last_at").alias("told_at"),
            F.max("closed").alias("handed_over"),
            F.max(F.col("project").isNotNull()).alias("named"),
        )
        .withColumn("anew", anew.cast("int"))
        .withColumn("era", F.coalesce(F.sum("anew").over(in_time), F.lit(0)))
        .withColumn("superseded", F.min("began").over(in_order.rowsBetween(1, Window.unboundedFollowing)))
        .select(*SPELL, "began", "handed_over", "named", "superseded")
    )


def queues(levels: DataFrame) -> DataFrame:
    """Those rows that are of queues."""
    return levels.where(F.col("project").isNotNull())


def runs(records: DataFrame) -> DataFrame:
    """A row for each run of a node: its first record that is there. `complete` if it had told nothing before."""
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
    """Whether a queue (or bucket) that was first seen in the record of this number was at 0 before: its run, or its
    epoch, began after the first record that is there, or it would have been told before then (a little later than
    REFRESH says where a node needs many records for an interval).
    """
    return F.coalesce(
        F.col("complete") | (F.col("since") >= F.col("run_at")) | (first_number > F.col("run_number") + 2 * REFRESH),
        F.lit(False),
    )


def flows(grains: Grains) -> DataFrame:
    """A row for each tenant, priority (and `WHOLE`) and grain in which something was told: SUMS, how much each grew."""
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
    """A row for each queue, epoch and grain in which it was told or superseded: how much counters, `backlog` and
    `in_flight` grew since the row before, and `came`, what this says of arrivals. `killed` if a later epoch took over
    that found no last word.
    """
    order = Window.partitionBy(*EPOCH).orderBy("grain")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = (
        _with_its_end(grains.levels)
        .join(runs(grains.records), ["node", "run"], "left")
        .withColumns({name: F.max(name).over(so_far) for name in CUMULATIVE})
    )
    over = F.col("grain") >= F.col("superseded")
    told = told.withColumns(
        {
            "killed": F.coalesce(over & ~F.col("handed_over"), F.lit(False)),
            "backlog": F.when(over, 0).otherwise(F.col("backlog")),
            "in_flight": F.when(over & ~F.col("handed_over"), 0).otherwise(F.col("in_flight")),
            "base": counts_from_0(F.first("first_number").over(so_far)),
        }
    )
    return _grown(told, order)


def _grown(told: DataFrame, order: WindowSpec) -> DataFrame:
    told = told.withColumn("waiting", F.col("backlog") + F.col("in_flight"))

    def growth(name: str) -> Column:
        first = F.when(F.col("base"), 0).otherwise(F.col(name))
        return F.col(name) - F.coalesce(F.lag(name).over(order), first)

    found = told.select(
        *EPOCH, "grain", "killed",
        *(growth(name).alias(name) for name in (*CUMULATIVE, "waiting")),
        *((F.col(name) - F.coalesce(F.lag(name).over(order), F.lit(0))).alias(name) for name in _LEVELS),
    )  # fmt: skip
    return found.withColumn("came", total([*ENDED, "waiting"]))


def _with_its_end(levels: DataFrame) -> DataFrame:
    """With a row at the grain in which the next epoch began, if it has none there: what it had waiting is gone then."""
    order = Window.partitionBy(*EPOCH).orderBy("grain")
    known = queues(levels).join(epochs(levels).drop("began", "named"), [*SPELL])
    grain, end, following = F.col("grain"), F.col("superseded"), F.col("following")
    wanted = (grain < end) & (following.isNull() | (following > end))
    both = F.explode(F.when(wanted, F.array("grain", "superseded")).otherwise(F.array("grain")))
    return known.withColumn("following", F.lead("grain").over(order)).withColumn("grain", both).drop("following")
