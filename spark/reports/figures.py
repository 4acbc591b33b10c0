"""Computes figures by tenant, priority (and `WHOLE`) and window, from which the tenants' rows are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports import forecast
from evenlane.spark.reports.columns import add_seconds, floor_to, seconds
from evenlane.spark.reports.flows import SUMS, epochs, flows
from evenlane.spark.reports.waits import wait_times
from evenlane.spark.reports.window_levels import covered, extent, heads, topics, windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from evenlane.spark.reports.grains import Grains
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.targets import Targets

    Keep = Callable[[DataFrame, str], DataFrame]

_LEVELS = ("backlog", "in_flight")
_FLOWS = tuple(name for name in SUMS if name not in _LEVELS)
_KEY = ("project", "priority", "window_start")
_BUSY = 0.95


def figures(grains: Grains, span: Span, targets: Targets, keep: Keep) -> DataFrame:
    """Compute the figures from `grains` of the span's grain length: all columns of TENANTS and PRIORITY on flows, waits
    and forecast. `now` is the window's end, or the end of all data if that is earlier. `keep` gets each frame that is
    used more than once.
    """
    ends = keep(extent(grains.records), "extent")
    spells = keep(epochs(grains.levels), "epochs")
    grown = keep(flows(grains, spells, ends, span), "flows")
    found = (
        windows(grown, ends, span.window_s)
        .join(_in_windows(grown, ends, span), [*_KEY], "left")
        .join(heads(grains, spells, ends, span.window_s), [*_KEY], "left")
        .join(wait_times(grains, span.window_s), [*_KEY], "left")
        .join(topics(grains.levels, span.window_s), ["project", "window_start"], "left")
    )
    measured = keep(_measure_held(found, span, targets), "windows")
    return _foreseen(_rates(measured, span))


def _in_windows(grown: DataFrame, ends: DataFrame, span: Span) -> DataFrame:
    """Sum over the windows' grains; take levels at the end of the last one; and compute figures of single grains, of
    which the first and last may be cut off by the ends of the data.
    """
    order = Window.partitionBy("project", "priority").orderBy("grain")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    levels = (
        grown.withColumns({name: F.sum(name).over(so_far) for name in _LEVELS})
        .crossJoin(F.broadcast(ends))
        .withColumn("grain_end", F.least(add_seconds(F.col("grain"), span.grain_s), F.col("data_end")))
    )
    reported_s = seconds(F.col("grain_end")) - seconds(F.greatest("grain", "data_start"))
    # rates over a few seconds are arbitrary, so a grain that is cut off counts as at least half a grain
    all_s = seconds(F.col("data_end")) - seconds(F.col("data_start"))
    over_s = F.greatest(reported_s, F.least(F.lit(span.grain_s / 2), all_s), F.lit(1.0))
    # in less of a grain, some nodes may not have reported yet
    time = F.when(reported_s >= span.grain_s / 2, F.col("reported_at"))
    height, count = F.when(time.isNotNull(), F.col("backlog")).cast("double"), F.count(time)
    unexplained = F.regr_syy(height, time) - F.regr_slope(height, time) * F.regr_sxy(height, time)
    off = F.when(count > 2, F.greatest(F.lit(0.0), unexplained) / (count - 2))
    return levels.groupBy("project", "priority", floor_to(F.col("grain"), span.window_s).alias("window_start")).agg(
        *(F.sum(name).alias(name) for name in _FLOWS),
        *(F.max_by(name, "grain").alias(name) for name in _LEVELS),
        F.avg(F.when(F.col("reported_at").isNotNull(), F.col("in_flight"))).alias("in_flight_mean"),
        F.when(count > 2, F.regr_slope(height, time)).alias("slope"),
        F.sqrt(off / F.regr_sxx(height, time)).alias("slope_error"),
        F.sort_array(F.collect_list(F.col("paced_arrived") / over_s), asc=False).alias("arrivals"),
        F.max(F.col("paced_attempts") / over_s).alias("most_attempts"),
    )


def _measure_held(found: DataFrame, span: Span, targets: Targets) -> DataFrame:
    """Carry levels over to windows without reports, and set their growth to 0."""
    order = Window.partitionBy("project", "priority").orderBy("window_start")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    end = add_seconds(F.col("window_start"), span.window_s)
    held = {name: F.last(name, ignorenulls=True).over(so_far) for name in (*_LEVELS, "qps", "weight")}
    found = found.withColumns(held).fillna(dict.fromkeys((*_FLOWS, *_LEVELS), 0))
    return found.withColumns(
        {
            "window_end": end,
            "now": F.least(end, "data_end"),
            "covered_s": covered(span.window_s),
            "in_flight_mean": F.coalesce("in_flight_mean", "in_flight"),
            "oldest_s": F.when(
                (F.col("backlog") > 0) & F.col("head_at").isNotNull(),
                F.greatest(F.lit(0.0), seconds(F.least(end, "data_end")) - seconds(F.col("head_at"))),
            ),
            "target_s": _target(targets),
            "first_puts": F.col("arrived") - F.col("retried"),
        }
    )


def _target(targets: Targets) -> Column:
    found = F.lit(targets.other_s)
    for name, value in targets.oldest_s.items():
        found = F.when(F.col("priority") == name, value).otherwise(found)
    return found


def _rates(found: DataFrame, span: Span) -> DataFrame:
    """Compute rates per second over the covered time. A grain without reports is one in which nothing happened."""
    length = F.when(F.col("covered_s") > 0, F.col("covered_s"))
    count = F.greatest(F.lit(1), F.ceil(F.col("covered_s") / span.grain_s))
    busy = (count - F.ceil(count * _BUSY)).cast("int")
    peak = F.coalesce(F.greatest(F.lit(0.0), F.get("arrivals", busy)), F.lit(0.0))
    return found.withColumns(
        {
            "arrival_rate": F.coalesce(F.greatest(F.lit(0.0), F.col("paced_arrived")) / length, F.lit(0.0)),
            **{
                f"{name}_rate": F.coalesce(F.col(f"paced_{paced}") / length, F.lit(0.0))
                for name, paced in {"drain": "ended", "handled": "handled", "failed": "failed"}.items()
            },
            "trend": F.coalesce("slope", (F.col("paced_arrived") - F.col("paced_ended")) / length, F.lit(0.0)),
            "used_peak": F.coalesce("most_attempts", F.lit(0.0)),
        }
    ).withColumns(
        {
            "arrival_peak": F.greatest(peak, "arrival_rate"),
            "used_peak": F.greatest("used_peak", F.coalesce(F.col("paced_attempts") / length, F.lit(0.0))),
        }
    )


def _foreseen(found: DataFrame) -> DataFrame:
    net, error = -F.col("trend"), forecast.SURE * F.col("slope_error")
    found = found.withColumns({"trend_word": forecast.trend_word(), "empty_word": forecast.empty_word()})
    return found.withColumns(
        {
            "empty_s": forecast.empty_s(net),
            "empty_low_s": forecast.empty_s(net + error),
            "empty_high_s": forecast.empty_s(net - error),
            "late_since": forecast.late_since(),
            "late_by_s": forecast.late_by_s(),
            "miss_at": forecast.miss_at(),
        }
    )
