"""Computes growth of counters and backlogs per grain, by a law of conservation that holds across handoffs.

See docs/reference/report-figures.md.

When a node takes over a partition, its `arrived` counts the partition's backlog again. But arrivals equal what ended
plus what is left. In any period, arrivals = growth of ended messages (handled, retried, dead, expired, dropped; all
epochs)
+ growth of waiting messages (by the latest epoch) and messages in flight (of each epoch except those that ended without
a final report).

A queue's first record in a grain also reports what happened before the grain began. That difference is divided at the
grain's start, in proportion to time. Sums over all grains stay exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.records.meter_record import REFRESH
from evenlane.spark.reports.columns import add_seconds, each_as, floor_to, seconds, total
from evenlane.spark.reports.grains import EPOCH, SPELL
from evenlane.spark.reports.schemas import COUNTED, CUMULATIVE, ENDED, QUEUE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.grains import Grains
    from evenlane.spark.reports.spans import Span

_LEVELS = ("backlog", "in_flight")
_PACED = {"handled": ("handled",), "failed": ("retried", "dead"), "ended": ENDED, "attempts": ("attempts",)}
PACED = tuple(f"paced_{name}" for name in ("arrived", *_PACED))
"""Growth for rates: in the newest window, as if each node had reported up to the end of all data."""
SUMS = (*CUMULATIVE, "uncounted", *_LEVELS, *PACED)
WHOLE = ""
"""Value of the column `priority` for all of a tenant's priorities together. No priority has this name."""
_OF_PACE = ("final", "run_to", "run_span_s", "data_start", "data_end")
_NEXT_SPANS = 1.5
"""A node whose last record is older than this many intervals may have ended."""
_MOST_PACE = 2.0
"""Rates over less than half of the newest window would be arbitrary."""
_IN_ORDER = f"partition by {', '.join(f'`{name}`' for name in EPOCH)} order by grain"
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
            F.max("event").alias("run_to"),
            F.max_by("span_s", "number").alias("run_span_s"),
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


def flows(grains: Grains, spells: DataFrame, ends: DataFrame, span: Span) -> DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and grain with reports: the growth of each of SUMS, and
    `reported_at`, when the backlog was as reported, in unix s (null: no report in this grain). `spells` are the epochs,
    `ends` is the extent of the records.
    """
    of_queue = changes(grains, spells, ends, span).groupBy(*QUEUE, "grain")
    grown = [*CUMULATIVE, "came", *_LEVELS, *PACED]
    cut = F.max("killed") & (F.sum("came") < 0)
    moved, height = F.abs("backlog"), F.col("reported_s")
    counted = of_queue.agg(
        *each_as("sum({})", grown), cut.alias("cut"),
        F.max(height).alias("last_s"), F.sum(moved * height).alias("weighted_s"),
        F.sum(F.when(height.isNotNull(), moved)).alias("moved"),
    ).withColumns(
        {
            "arrived": F.when(F.col("cut"), 0).otherwise(F.col("came")),
            "paced_arrived": F.when(F.col("cut"), 0.0).otherwise(F.col("paced_arrived")),
            "uncounted": F.when(F.col("cut"), -F.col("came")).otherwise(0),
        }
    )  # fmt: skip
    both = counted.withColumn("priority", F.explode(F.array("priority", F.lit(WHOLE))))
    # what moved the backlog decides, as a queue that doesn't change is reported only now and then
    at = F.when(F.sum("moved") > 0, F.sum("weighted_s") / F.sum("moved")).otherwise(F.max("last_s"))
    return both.groupBy("project", "priority", "grain").agg(
        *each_as("sum({})", SUMS), (seconds(F.col("grain")) + at).alias("reported_at")
    )


def changes(grains: Grains, spells: DataFrame, ends: DataFrame, span: Span) -> DataFrame:
    """Return a row per queue, epoch and grain in which it was reported or superseded: the growth of counters, `backlog`
    and `in_flight` since the previous row, and `came`, the arrivals that follow from it. `killed` if a later epoch took
    over without a final report. `reported_s` is when the queue was last reported, in s after the grain's start.
    """
    so_far = f"{_IN_ORDER} rows between unbounded preceding and current row"
    known = _with_its_end(grains.levels, spells).join(
        runs(grains.records).crossJoin(F.broadcast(ends)), ["node", "run"], "left"
    )
    others = [f"`{name}`" for name in known.columns if name not in CUMULATIVE]
    columns = known.select(*others, *each_as(f"max({{}}) over ({so_far})", CUMULATIVE))
    over = F.col("grain") >= F.col("superseded")
    columns = columns.withColumns(
        {
            "over": F.coalesce(over, F.lit(False)),
            "final": F.coalesce(over | F.col("handed_over"), F.lit(False)),
            "killed": F.coalesce(over & ~F.col("handed_over"), F.lit(False)),
            "backlog": F.when(over, 0).otherwise(F.col("backlog")),
            "in_flight": F.when(over & ~F.col("handed_over"), 0).otherwise(F.col("in_flight")),
            "base": counts_from_0(F.expr(f"first(first_number) over ({so_far})")),
            "reported_s": F.when(
                F.col("last_at") >= F.col("grain"), seconds(F.col("last_at")) - seconds(F.col("grain"))
            ),
        }
    )
    return _divided(_compute_growth(columns), span)


def _compute_growth(columns: DataFrame) -> DataFrame:
    columns = columns.withColumn("waiting", F.col("backlog") + F.col("in_flight"))
    before = f"lag({{0}}) over ({_IN_ORDER})"
    growth = f"{{0}} - coalesce({before}, if(base, 0, {{0}}))"
    first_growth = f"first_{{0}} - coalesce({before}, if(base, 0, first_{{0}}))"
    share = _share_before(*(F.expr(before.format(name)) for name in ("last_at", "over")))
    found = columns.select(
        *EPOCH, "grain", "killed", "reported_s", share.alias("share"), *_OF_PACE,
        *each_as(growth, (*CUMULATIVE, "waiting")),
        *each_as(f"{{0}} - coalesce({before}, 0)", _LEVELS),
        *(F.expr(f"greatest(0, {first_growth.format(name)}) as first_{name}") for name in COUNTED),
        F.expr(f"{first_growth.format('waiting')} as first_waiting"),
    )  # fmt: skip
    return found.withColumns(
        {
            "came": total([*ENDED, "waiting"]),
            "first_came": total([*(f"first_{name}" for name in ENDED), "first_waiting"]),
        }
    )


def _share_before(previous_at: Column, previous_over: Column) -> Column:
    """Return the share of the first difference that belongs to the grain before; 0 where it can't be divided: the first
    report of an epoch counts what it took over, and after the next epoch's first one its backlog doesn't count.
    """
    began = F.col("first_at") - F.make_dt_interval(secs=F.coalesce("first_span_s", F.lit(0.0)).cast("decimal(18,6)"))
    known = F.when(F.col("base") & (F.col("since") <= began), began)
    previous = F.coalesce(previous_at, known)
    start = F.when(previous.isNotNull(), F.greatest(previous, began))
    divided = (
        ~F.coalesce(previous_over, F.lit(False)) & (start < F.col("grain")) & (F.col("first_at") >= F.col("grain"))
    )
    length = seconds(F.col("first_at")) - seconds(start)
    return F.coalesce(F.when(divided, (seconds(F.col("grain")) - seconds(start)) / length), F.lit(0.0))


def _divided(grown: DataFrame, span: Span) -> DataFrame:
    """Move the share of each first difference to the grain before, in whole messages."""
    early = F.col("early")
    moves = F.expr(f"greatest({', '.join(f'abs(round(share * first_{name}))' for name in (*COUNTED, 'came'))}) > 0")
    parts = F.when(moves, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    whole = [name for name in (*CUMULATIVE, *_LEVELS) if name not in COUNTED]
    moved = "cast(round(share * first_{0}) as long)"
    divided = grown.withColumn("early", F.explode(parts)).select(
        *EPOCH, *_OF_PACE, (F.col("killed") & ~early).alias("killed"),
        F.when(early, add_seconds(F.col("grain"), -span.grain_s)).otherwise(F.col("grain")).alias("grain"),
        F.when(~early, F.col("reported_s")).alias("reported_s"),
        *each_as(f"if(early, {moved}, {{0}} - {moved})", (*COUNTED, "came")),
        *each_as("if(early, 0, {0})", whole),
    )  # fmt: skip
    paced = {"arrived": F.col("came"), **{name: total(parts) for name, parts in _PACED.items()}}
    return divided.withColumn("pace", _pace(span)).withColumns(
        {f"paced_{name}": column * F.col("pace") for name, column in paced.items()}
    )


def _pace(span: Span) -> Column:
    """Return what a row's growth is multiplied by for rates. A node that goes on reported the newest window up to its
    last record, but the window is covered up to the last record of all nodes.
    """
    end, newest = F.col("data_end"), floor_to(F.col("data_end"), span.window_s)
    length = seconds(end) - seconds(F.greatest(newest, "data_start"))
    lag = seconds(end) - seconds(F.col("run_to"))
    goes_on = ~F.col("final") & (lag > 0) & (lag <= _NEXT_SPANS * F.col("run_span_s")) & (lag < length)
    stretched = F.when((F.col("grain") >= newest) & goes_on, F.least(F.lit(_MOST_PACE), length / (length - lag)))
    return F.coalesce(stretched, F.lit(1.0))


def _with_its_end(levels: DataFrame, spells: DataFrame) -> DataFrame:
    """Add a row at the grain in which the next epoch began, unless there is one: the old epoch's backlog ends there."""
    order = Window.partitionBy(*EPOCH).orderBy("grain")
    known = queues(levels).join(spells.drop("began", "named"), [*SPELL])
    grain, end, following = F.col("grain"), F.col("superseded"), F.col("following")
    wanted = (grain < end) & (following.isNull() | (following > end))
    both = F.explode(F.when(wanted, F.array("grain", "superseded")).otherwise(F.array("grain")))
    return known.withColumn("following", F.lead("grain").over(order)).withColumn("grain", both).drop("following")
