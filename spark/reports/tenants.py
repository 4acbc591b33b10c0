"""Builds the report's rows, one per tenant and window (docs/reference/report-figures.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.spark.reports import advice
from evenlane.spark.reports.by_tenant import tenant_figures
from evenlane.spark.reports.columns import floor_to, ratio, shape, total
from evenlane.spark.reports.flows import WHOLE
from evenlane.spark.reports.schemas import PRIORITY, RECOMMENDED, TENANTS
from evenlane.spark.reports.targets import Targets
from evenlane.spark.schemas import WAITED

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.reduction import GrainRows
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.timeline import Timeline

TARGETS = Targets()
_KEY = ("project", "window_start")
_TOP = 5  # reasons of dead letters
# Messages behind a higher priority wait for that priority's cause.
_WAITED_ITSELF = [name for name in WAITED if name != "waited_higher_priority_s"]


def tenants(
    rows: GrainRows,
    timeline: Timeline,
    dead: DataFrame,
    span: Span,
    targets: Targets = TARGETS,
    since: dt.datetime | None = None,
) -> DataFrame:
    """Compute TENANTS from rows of the span's grain length, and their timeline; `dead` are rows of DEAD. Windows that
    begin before `since` are left out, but their data is used (schemas.LEAD_S).
    """
    found = _in_one_row(tenant_figures(dead.sparkSession, rows, timeline, span, targets))
    joined = found.withColumns(_all_tenants()).join(dead_letters(dead, span.window_s), [*_KEY], "left")
    if since is not None:
        joined = joined.where(F.col("window_start") >= F.lit(since))
    return shape(_judge(joined, span, targets), TENANTS)


def recommended(tenants: pl.LazyFrame) -> pl.LazyFrame:
    """Compute RECOMMENDED: the latest window of each tenant whose quota should change, in the order of projects."""
    latest = tenants.group_by("project").agg(pl.col("window_start").max())
    changed = tenants.filter(pl.col("advice").is_in(["raise", "lower"]))
    return changed.join(latest, on=_KEY, how="semi").select(RECOMMENDED.names).sort("project")


def sum_uncounted(tenants: pl.LazyFrame) -> dict[int, int]:
    """Return the messages of all tenants that went uncounted, by the window's start in unix µs."""
    window = pl.col("window_start").to_physical()
    return dict(tenants.group_by(window).agg(pl.col("uncounted").sum()).collect().iter_rows())


def dead_letters(dead: DataFrame, window_s: int) -> DataFrame:
    """Return a row per tenant and window with dead letters: their number, and the most frequent reasons."""
    counted = (
        dead.where(F.col("project").isNotNull())
        .withColumn("reason", F.concat_ws(": ", *(F.nullif(F.col(name), F.lit("")) for name in ("reason", "error"))))
        .groupBy("project", floor_to(F.col("died_at"), window_s).alias("window_start"), "reason")
        .agg(F.count("*").alias("count"))
    )
    order = Window.partitionBy(*_KEY).orderBy(F.desc("count"), "reason")
    ranked = counted.withColumn("rank", F.row_number().over(order))
    top = F.collect_list(F.when(F.col("rank") <= _TOP, F.struct("rank", "reason", "count")))
    return (
        ranked.groupBy(*_KEY)
        .agg(F.sum("count").alias("dead_letters"), F.sort_array(top).alias("top"))
        .select(*_KEY, "dead_letters", F.arrays_zip("top.reason", "top.count").alias("dead_reasons"))
    )


def _in_one_row(found: DataFrame) -> DataFrame:
    """Combine a tenant's figures in a window, those of its priorities, and the worst of these in one row. This groups
    `found` instead of joining it with itself, because Spark would plan all of `found` once per side.
    """
    whole = F.col("priority") == WHOLE
    of_one = ("late_since", "late_by_s", "miss_at", "priority")
    of_whole = F.struct(*(name for name in found.columns if name not in {*_KEY, *of_one}))
    late, miss = F.when(~whole, F.col("late_by_s")), F.when(~whole, F.col("miss_at"))
    together = found.groupBy(*_KEY).agg(
        F.first(F.when(whole, of_whole), ignorenulls=True).alias("whole"),
        F.sort_array(F.collect_list(F.when(~whole, F.struct(*PRIORITY.names)))).alias("priorities"),
        F.coalesce(F.max(late) > 0, F.lit(False)).alias("late"),
        F.max_by("priority", late).alias("late_priority"),
        F.max_by("late_since", late).alias("late_since"),
        F.max(late).alias("late_by_s"),
        F.min_by("priority", miss).alias("miss_priority"),
        F.min(miss).alias("miss_at"),
    )
    there = together.where(F.col("whole").isNotNull())
    return there.select(*_KEY, "whole.*", *(name for name in together.columns if name not in {*_KEY, "whole"}))


def _all_tenants() -> dict[str, Column]:
    """Return the totals for shares."""
    window = Window.partitionBy("window_start")
    return {
        "all_in_flight": F.sum("in_flight_mean").over(window),
        "all_ran_s": F.sum("ran_s").over(window),
    }


def _judge(found: DataFrame, span: Span, targets: Targets) -> DataFrame:
    allowed = F.col("qps") * F.col("covered_s")
    found = found.withColumns(
        {
            "quota_used": ratio(F.col("paced_attempts"), allowed),
            "quota_peak": ratio(F.col("used_peak"), F.col("qps")),
            "share_in_flight": ratio(F.col("in_flight_mean"), F.col("all_in_flight")),
            "share_handling": ratio(F.col("ran_s"), F.col("all_ran_s")),
            "empty_in_time": F.coalesce(F.col("empty_s") <= targets.empty_s, F.lit(False)),
            "causes": _causes(),
            "quota_share": ratio(F.col("waited_quota_s"), total(_WAITED_ITSELF)),
            **advice.calm(span.window_s),
            "need": advice.need(targets.empty_s),
            "dead_letters": F.coalesce("dead_letters", F.lit(0)),
            "dead_reasons": F.coalesce("dead_reasons", F.array()),
        }
    )
    found = found.withColumns({"top_cause": F.get("causes", F.lit(0)).cause, "advice": advice.advice(span.window_s)})
    return found.withColumn("recommended_qps", advice.recommended()).withColumn(
        "reason", advice.reason(targets.empty_s)
    )


def _causes() -> Column:
    # in SQL, as PySpark numbers the variables of lambda functions: Spark would compile them again for each report
    every = ", ".join(
        f"struct({name} as seconds, '{cause}' as cause)" for cause, name in zip(REASONS, WAITED, strict=True)
    )
    there = f"sort_array(filter(array({every}), each -> each.seconds > 0), false)"
    share = f"each.seconds / ({' + '.join(WAITED)})"
    return F.expr(f"transform({there}, each -> struct(each.cause, each.seconds, {share} as share))")
