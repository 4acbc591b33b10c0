"""Reduces METER to the last report of each queue per grain of time, and the records that contained it.

The output may be appended to a table, more than once and in any order: counters never decrease within an epoch and
records are numbered, so `merge_grains` finds the last report again.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import each_as, floor_to, seconds, shape
from evenlane.spark.reports.keys import EPOCH
from evenlane.spark.reports.schemas import COUNTED, CUMULATIVE, LEVELS, RECORDS, TOPIC, WAIT_LEVELS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import Column, DataFrame

SKEW_S = 30
"""A node's clock that differs from the server's by more than this, in s, is wrong, and the server's time is used. A
fast clock shows in each record. With a slow one, even a run's quickest record seems to have taken this long; otherwise
records were just late.
"""
FILLED: dict[str, bool | float | int | str] = {
    **dict.fromkeys(("run", "number", "partition", "epoch", "group", "backlog", "in_flight", *CUMULATIVE), 0),
    "node": "",
    "priority": "?",
    "closed": False,
}
"""Values of columns that an older record lacks."""


class Grains(NamedTuple):
    """Frames of LEVELS, WAIT_LEVELS and RECORDS. A report has WAIT_LISTS instead, which only figures are made from."""

    levels: DataFrame
    waits: DataFrame
    records: DataFrame


def grains(
    meter: DataFrame,
    grain_s: int,
    before: Iterable[DataFrame] = (),
    behind: Collection[tuple[str, int]] | None = None,
) -> Grains:
    """Reduce rows of METER by event time. `behind` are the runs (node, run) with a slow clock; if it is None, they are
    found in the rows and in `before`, which are earlier RECORDS.
    """
    skewed = (delay_s() < -SKEW_S) | F.col("behind")
    event = F.when(skewed, F.col("stored")).otherwise(F.coalesce("at", "stored"))
    slow = _behind([meter, *before]) if behind is None else _named(meter, behind)
    marked = (
        meter.join(F.broadcast(slow), ["node", "run"], "left") if slow else meter.withColumn("behind", F.lit(False))
    )
    timed = marked.withColumn("event", event).withColumn("grain", floor_to(F.col("event"), grain_s))
    reported = _whole(timed.where(F.col("partition").isNotNull() & F.col("problem").isNull()))
    firsts = {"at": "event", "span_s": "span_s", "number": "number", **{name: name for name in COUNTED}}
    levels = reported.withColumns(
        {
            "last_at": F.col("event"),
            "first_waiting": F.col("backlog") + F.col("in_flight"),
            **{f"first_{name}": F.col(column) for name, column in firsts.items()},
        }
    )
    each = F.explode("waits").alias("each")
    counted = {"bucket": "bucket", "first_count": "count", "count": "count"}
    waits = levels.select("*", each).withColumns({name: F.col(f"each.{of}") for name, of in counted.items()})
    return merge_grains(Grains(levels, waits, timed))


def delay_s() -> Column:
    """Return the time from a record's creation, by its node's clock, to its storage, by the server's clock."""
    return seconds(F.col("stored")) - seconds(F.col("at"))


def _behind(reported: Iterable[DataFrame]) -> DataFrame:
    """Return the runs whose clock is slow."""
    delays = [each.select("node", "run", delay_s().alias("delay_s")) for each in reported]
    all_of_them = reduce(lambda one, other: one.unionByName(other), delays)
    quickest = all_of_them.groupBy("node", "run").agg(F.min("delay_s").alias("quickest_s"))
    return quickest.where(F.col("quickest_s") > SKEW_S).select("node", "run", F.lit(True).alias("behind"))


def _named(meter: DataFrame, behind: Collection[tuple[str, int]]) -> DataFrame | None:
    if not behind:
        return None
    nodes, runs = zip(*behind, strict=True)
    table = pa.table({"node": nodes, "run": pa.array(runs, pa.int64()), "behind": [True] * len(nodes)})
    return meter.sparkSession.createDataFrame(table)


def merge_grains(grains: Grains, grain_s: int | None = None) -> Grains:
    """Merge rows so that each grain, queue and record occurs once; optionally into longer grains. Idempotent."""
    levels, waits, records = (_longer(each, grain_s) for each in grains)
    return Grains(
        shape(levels.groupBy("grain", *EPOCH).agg(*_last_word()), LEVELS),
        shape(
            waits.groupBy("grain", *EPOCH, "bucket").agg(
                *each_as("min({})", ("since", "first_number", "first_count")), *each_as("max({})", ("count",))
            ),
            WAIT_LEVELS,
        ),
        _once(records),
    )


def union_grains(*parts: Grains) -> Grains:
    """Merge several parts."""
    return merge_grains(
        Grains(*(reduce(lambda one, other: one.unionByName(other), frames) for frames in zip(*parts, strict=True)))
    )


def _whole(reported: DataFrame) -> DataFrame:
    """Fill in fields that older records lack."""
    return reported.fillna(FILLED)


def _longer(frame: DataFrame, grain_s: int | None) -> DataFrame:
    return frame if grain_s is None else frame.withColumn("grain", floor_to(F.col("grain"), grain_s))


def _last_word() -> list[Column]:
    """Return the aggregates of the last report. All qualify for Spark's fast aggregation (no strings or structs)."""
    return [
        *each_as("min({})", ("since", "first_number")),
        *each_as("max_by({}, number)", ("last_at", "backlog", "oldest_s", "in_flight")),
        *each_as("max_by({0}, if({0} is null, null, number))", TOPIC),
        *each_as("max({})", ("closed", "longest_s", *CUMULATIVE, "number")),
        *each_as("min_by({}, first_number)", ("first_at", "first_span_s", "first_waiting")),
        *each_as("min({})", (f"first_{name}" for name in COUNTED)),
    ]


def _once(records: DataFrame) -> DataFrame:
    """Deduplicate messages by sequence and time: a recreated stream has the same sequences at other times."""
    key = ["sequence", "stored"]
    others = [name for name in RECORDS.names if name not in key]
    return shape(records.groupBy(*key).agg(*each_as("max({})", others)), RECORDS)
