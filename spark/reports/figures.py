"""Computes figures by tenant, priority (and `WHOLE`) and window, from which the tenants' rows are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from evenlane.spark.reports import forecast
from evenlane.spark.reports.expressions import MICROS, Extent, floor_to, seconds
from evenlane.spark.reports.flows import SUMS, flows
from evenlane.spark.reports.keys import LINE, WINDOW, number_queues
from evenlane.spark.reports.reduction import merge_levels
from evenlane.spark.reports.waits import wait_times
from evenlane.spark.reports.window_levels import covered, heads, topics, windows

if TYPE_CHECKING:
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.targets import Targets

_LEVELS = ("backlog", "in_flight")
_FLOWS = tuple(name for name in SUMS if name not in _LEVELS)
_BUSY = 0.95


PART_ROWS = 50_000
"""Rows of LEVELS that are computed together, unless one tenant has more. They take some 3 kB each, with their waits."""


def figures(levels: pl.DataFrame, waits: pl.DataFrame, ends: Extent, span: Span, targets: Targets) -> pl.DataFrame:
    """Compute the figures of tenants from all their rows of LEVELS and WAIT_LISTS, to which those of their epoch and
    run were added: all columns of TENANTS and PRIORITY on flows, waits and forecast. Times are in unix µs. `ends` are
    those of all data; `now` is the window's end, or that of all data if it is earlier.
    """
    sizes = levels.group_by("project").len().sort("project")
    tenants = sizes.select("project", ((pl.col("len").cum_sum() - 1) // PART_ROWS).alias("part"))
    parts = tenants.partition_by("part") or [tenants]
    return pl.concat([_figures(_of(levels, part), _of(waits, part), ends, span, targets) for part in parts])


def _of(rows: pl.DataFrame, tenants: pl.DataFrame) -> pl.DataFrame:
    return rows.join(tenants.select("project"), on="project", how="semi")


def _figures(levels: pl.DataFrame, waits: pl.DataFrame, ends: Extent, span: Span, targets: Targets) -> pl.DataFrame:
    merged = number_queues(merge_levels(levels, span.grain_s))
    grown = flows(merged, ends, span)
    found = (
        windows(grown, ends, span.window_s)
        .join(_in_windows(grown, ends, span), on=WINDOW, how="left")
        .join(heads(merged, ends, span.window_s), on=WINDOW, how="left")
        .join(wait_times(waits, merged, span.window_s), on=WINDOW, how="left")
        .join(topics(merged, span.window_s), on=("project", "window_start"), how="left")
    )
    return _foreseen(_rates(_measure_held(found.sort(WINDOW), ends, span, targets), span))


def _in_windows(grown: pl.DataFrame, ends: Extent, span: Span) -> pl.DataFrame:
    """Sum over the windows' grains; take levels at the end of the last one; and compute figures of single grains, of
    which the first and last may be cut off by the ends of the data.
    """
    grain_end = pl.min_horizontal(pl.col("grain") + span.grain_s * MICROS, ends.end)
    reported_s = seconds(grain_end - pl.max_horizontal("grain", ends.start))
    # rates over a few seconds are arbitrary, so a grain that is cut off counts as at least half a grain
    over_s = pl.max_horizontal(reported_s, min(span.grain_s / 2, ends.length_s), 1.0)
    window_start = floor_to(pl.col("grain"), span.window_s)
    # in less of a grain, some nodes may not have reported yet
    time = pl.when(reported_s >= span.grain_s / 2).then(pl.col("reported_at") - seconds(window_start))
    return (
        grown.with_columns(pl.col(_LEVELS).cum_sum().over(LINE))
        .with_columns(
            window_start.alias("window_start"),
            time.alias("time"),
            pl.when(time.is_not_null()).then(pl.col("backlog")).cast(pl.Float64).alias("height"),
            (pl.col("paced_arrived") / over_s).alias("arrivals"),
            (pl.col("paced_attempts") / over_s).alias("attempts_rate"),
        )
        .group_by(WINDOW, maintain_order=True)
        .agg(
            pl.col(_FLOWS).sum(),
            pl.col(_LEVELS).last(),
            pl.col("in_flight").filter(pl.col("reported_at").is_not_null()).mean().alias("in_flight_mean"),
            *_regression(),
            pl.col("arrivals").sort(descending=True),
            pl.col("attempts_rate").max().alias("most_attempts"),
        )
        .with_columns(*_slope())
    )


def _regression() -> list[pl.Expr]:
    """Return the sums of squares of the backlog (`height`) over `time`, around their means."""
    x, y = (pl.col(name) - pl.col(name).mean() for name in ("time", "height"))
    sums = {"sxx": x * x, "sxy": x * y, "syy": y * y}
    return [
        pl.col("time").count().cast(pl.Int64).alias("points"),
        *(each.sum().alias(name) for name, each in sums.items()),
    ]


def _slope() -> list[pl.Expr]:
    """Return the slope of a linear regression, and its standard error; null for fewer than three points."""
    sxx, sxy, syy, points = (pl.col(name) for name in ("sxx", "sxy", "syy", "points"))
    known = (points > 2) & (sxx > 0)
    slope = sxy / sxx
    off = pl.max_horizontal(0.0, syy - slope * sxy) / (points - 2)
    return [pl.when(known).then(slope).alias("slope"), pl.when(known).then((off / sxx).sqrt()).alias("slope_error")]


def _measure_held(found: pl.DataFrame, ends: Extent, span: Span, targets: Targets) -> pl.DataFrame:
    """Carry levels over to windows without reports, and set their growth to 0."""
    end = pl.col("window_start") + span.window_s * MICROS
    now = pl.min_horizontal(end, ends.end)
    waited = (pl.col("backlog") > 0) & pl.col("head_at").is_not_null()
    return found.with_columns(
        pl.col(*_LEVELS, "qps", "weight").forward_fill().over(LINE), pl.col(_FLOWS).fill_null(0)
    ).with_columns(
        end.alias("window_end"),
        now.alias("now"),
        covered(ends, span.window_s).alias("covered_s"),
        pl.coalesce("in_flight_mean", "in_flight"),
        pl.when(waited).then(pl.max_horizontal(0.0, seconds(now - pl.col("head_at")))).alias("oldest_s"),
        pl.col("priority")
        .replace_strict(dict(targets.oldest_s), default=targets.other_s, return_dtype=pl.Float64)
        .alias("target_s"),
        (pl.col("arrived") - pl.col("retried")).alias("first_puts"),
    )


def _rates(found: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Compute rates per second over the covered time. A grain without reports is one in which nothing happened."""
    length = pl.when(pl.col("covered_s") > 0).then(pl.col("covered_s"))
    count = pl.max_horizontal(1.0, (pl.col("covered_s") / span.grain_s).ceil())
    busy = (count - (count * _BUSY).ceil()).cast(pl.Int64)
    peak = pl.max_horizontal(0.0, pl.col("arrivals").list.get(busy, null_on_oob=True))
    growth = (pl.col("paced_arrived") - pl.col("paced_ended")) / length
    return found.with_columns(
        pl.max_horizontal(0.0, pl.col("paced_arrived") / length).alias("arrival_rate"),
        *(
            (pl.col(f"paced_{paced}") / length).fill_null(0.0).alias(f"{name}_rate")
            for name, paced in {"drain": "ended", "handled": "handled", "failed": "failed"}.items()
        ),
        pl.coalesce("slope", growth, 0.0).alias("trend"),
        pl.max_horizontal(0.0, "most_attempts", pl.col("paced_attempts") / length).alias("used_peak"),
    ).with_columns(pl.max_horizontal(peak, "arrival_rate").alias("arrival_peak"))


def _foreseen(found: pl.DataFrame) -> pl.DataFrame:
    net, error = -pl.col("trend"), forecast.SURE * pl.col("slope_error")
    return found.with_columns(
        forecast.trend_word().alias("trend_word"), forecast.empty_word().alias("empty_word")
    ).with_columns(
        forecast.empty_s(net).alias("empty_s"),
        forecast.empty_s(net + error).alias("empty_low_s"),
        forecast.empty_s(net - error).alias("empty_high_s"),
        forecast.late_since().alias("late_since"),
        forecast.late_by_s().alias("late_by_s"),
        forecast.miss_at().alias("miss_at"),
    )
