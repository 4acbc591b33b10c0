"""Rates how far the figures can be trusted: missing, duplicated, late or unreadable records, and wrong clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.records.meter_record import VERSION
from evenlane.spark.reports.columns import add_seconds, floor_to, seconds, shape
from evenlane.spark.reports.epochs import epochs, extent
from evenlane.spark.reports.grains import delay_s, is_skewed
from evenlane.spark.reports.schemas import QUALITY

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.grains import Grains
    from evenlane.spark.reports.spans import Span

_COUNTS = ("missing", "duplicated", "late", "skewed", "unreadable", "newer", "uncounted")
_LATE_SPANS = 2
_SILENT_SPANS = 6
_SILENT_S = 60.0


def quality(
    grains: Grains,
    tenants: DataFrame,
    span: Span,
    since: dt.datetime | None = None,
    now: dt.datetime | None = None,
) -> DataFrame:
    """Compute QUALITY for the windows of `tenants`, from the same grains. Without `now`, a node is silent if others
    have continued.
    """
    uncounted = tenants.groupBy("window_start").agg(F.sum("uncounted").alias("uncounted"))
    spells = epochs(grains.levels).where("named")
    found = (
        _of_records(grains.records, span.window_s)
        .join(_count_killed(spells, span.window_s), "window_start", "left")
        .join(_silent(grains.records, spells, span.window_s, now), "window_start", "left")
        .join(uncounted, "window_start", "left")
    )
    if since is not None:
        found = found.where(F.col("window_start") >= F.lit(since))
    found = found.fillna(dict.fromkeys(_COUNTS, 0)).withColumns(
        {
            "window_end": add_seconds(F.col("window_start"), span.window_s),
            "killed": F.coalesce("killed", F.array()),
            "silent": F.coalesce("silent", F.array()),
        }
    )
    return shape(found.withColumn("sentence", _sentence()), QUALITY)


def _of_records(records: DataFrame, window_s: int) -> DataFrame:
    each = Window.partitionBy("node", "run", "number").orderBy("stored", "sequence")
    readable = F.col("problem").isNull()
    numbered = records.withColumns(
        {
            "window_start": floor_to(F.col("grain"), window_s),
            "again": readable & (F.row_number().over(each) > 1),
            "newer": ~readable & F.coalesce(F.col("version") > VERSION, F.lit(False)),
        }
    )
    # Gaps between the available numbers: a missing record was lost if a later record knows that it was stored.
    before = F.max("number").over(
        Window.partitionBy("node", "run").orderBy("number").rangeBetween(Window.unboundedPreceding, -1)
    )
    gap = F.when(readable & ~F.col("again") & (F.col("after") > before), F.col("after") - before)
    lost = numbered.withColumn("lost", F.coalesce(gap, F.lit(0)))
    skewed = readable & is_skewed()
    late = readable & ~skewed & (F.col("span_s") > 0) & (delay_s() > _LATE_SPANS * F.col("span_s"))
    return lost.groupBy("window_start").agg(
        F.count_if(readable).alias("records"),
        F.count_distinct(F.when(readable, F.col("node"))).alias("nodes"),
        F.sum("lost").alias("missing"),
        F.count_if("again").alias("duplicated"),
        F.count_if(late).alias("late"),
        F.count_if(skewed).alias("skewed"),
        F.count_if(~readable & ~F.col("newer")).alias("unreadable"),
        F.count_if("newer").alias("newer"),
        F.array_sort(F.collect_set(F.when(skewed, F.col("node")))).alias("skewed_nodes"),
    )


def _count_killed(spells: DataFrame, window_s: int) -> DataFrame:
    ended = spells.where(F.col("superseded").isNotNull() & ~F.col("handed_over"))
    window = floor_to(F.col("superseded"), window_s).alias("window_start")
    return ended.groupBy(window).agg(F.array_sort(F.collect_set(F.struct("node", "partition"))).alias("killed"))


def _silent(records: DataFrame, spells: DataFrame, window_s: int, now: dt.datetime | None) -> DataFrame:
    """Find silent nodes in the last window, as nothing is known of the time after it."""
    readable = records.where(F.col("problem").isNull())
    last = readable.groupBy("node").agg(F.max("event").alias("last"), F.max_by("span_s", "event").alias("span_s"))
    owning = spells.where(F.col("superseded").isNull() & ~F.col("handed_over"))
    ends = extent(records).withColumn("end", F.greatest("data_end", F.lit(now).cast("timestamp")))
    patience = F.greatest(F.lit(_SILENT_S), _SILENT_SPANS * F.coalesce("span_s", F.lit(0.0)))
    return (
        last.join(owning, "node", "left_semi")
        .crossJoin(F.broadcast(ends))
        .where(seconds(F.col("last")) + patience < seconds(F.col("end")))
        .groupBy(floor_to(F.col("data_end"), window_s).alias("window_start"))
        .agg(F.array_sort(F.collect_set("node")).alias("silent"))
    )


def _sentence() -> Column:
    def named(name: str, words: str, before: str = "") -> Column:
        return F.when(F.col(name) > 0, F.concat(F.lit(before), F.format_number(name, 0), F.lit(words)))

    nodes = F.array_join(F.array_distinct("killed.node"), ", ")
    killed = F.concat(
        nodes, F.lit(" ended without a last word: its last interval isn't counted, and what it hadn't settled may be "),
        F.lit("counted twice"), F.coalesce(named("uncounted", " messages went uncounted for sure)", " ("), F.lit("")),
    )  # fmt: skip
    parts = F.concat_ws(
        "; ",
        F.when(F.size("killed") > 0, killed),
        F.when(F.size("silent") > 0, F.concat(F.array_join("silent", ", "), F.lit(" has gone silent"))),
        named("missing", " records are missing: the next ones include their figures"),
        named("duplicated", " records came twice, and count once"),
        named("late", " records came late"),
        F.when(
            F.col("skewed") > 0,
            F.concat(F.lit("clocks are wrong on "), F.array_join("skewed_nodes", ", "), F.lit(": the server's counts")),
        ),
        named("newer", " records are of a newer release, and can't be read by this one"),
        named("unreadable", " messages aren't records"),
    )
    return F.when(parts == "", "Nothing is missing.").otherwise(F.concat(parts, F.lit(".")))
