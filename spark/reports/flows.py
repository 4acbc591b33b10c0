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

import polars as pl

from evenlane.engine.core.records.meter_record import REFRESH
from evenlane.spark.reports.expressions import MICROS, Extent, floor_to, micros, seconds, total
from evenlane.spark.reports.keys import LINE, QUEUE
from evenlane.spark.reports.schemas import COUNTED, CUMULATIVE, ENDED

if TYPE_CHECKING:
    from evenlane.spark.reports.spans import Span

_LEVELS = ("backlog", "in_flight")
_PACED = {"handled": ("handled",), "failed": ("retried", "dead"), "ended": ENDED, "attempts": ("attempts",)}
PACED = tuple(f"paced_{name}" for name in ("arrived", *_PACED))
"""Growth for rates: in the newest window, as if each node had reported up to the end of all data."""
SUMS = (*CUMULATIVE, "uncounted", *_LEVELS, *PACED)
WHOLE = ""
"""Value of the column `priority` for all of a tenant's priorities together. No priority has this name."""
_NEXT_SPANS = 1.5
"""A node whose last record is older than this many intervals may have ended."""
_MOST_PACE = 2.0
"""Rates over less than half of the newest window would be arbitrary."""


def counts_from_0(first_number: pl.Expr) -> pl.Expr:
    """Whether a queue (or bucket) that was first seen in this record was at 0 before. That is so in three cases: its
    run's first record is available; its epoch began no earlier than the run's first available record; or it was first
    seen so many records after that one that an older queue would have been reported before (REFRESH is doubled for
    nodes that need many records per interval).
    """
    since_run, late = pl.col("since") >= pl.col("run_at"), first_number > pl.col("run_number") + 2 * REFRESH
    return (pl.col("complete") | since_run | late).fill_null(value=False)


def with_whole(rows: pl.DataFrame) -> pl.DataFrame:
    """Add each row once more for all priorities together."""
    return pl.concat([rows, rows.with_columns(pl.lit(WHOLE).alias("priority"))])


def flows(levels: pl.DataFrame, ends: Extent, span: Span) -> pl.DataFrame:
    """Return a row per tenant, priority (and `WHOLE`) and grain with reports: the growth of each of SUMS, and
    `reported_at`, when the backlog was as reported, in unix s (null: no report in this grain). `levels` are numbered by
    `queue`, one for each queue and epoch.
    """
    grown = [*CUMULATIVE, "came", *_LEVELS, *PACED]
    moved, height = pl.col("backlog").abs(), pl.col("reported_s")
    counted = (
        _changes(levels, ends, span)
        .group_by(*QUEUE, "grain", maintain_order=True)
        .agg(
            pl.col(grown).sum(),
            (pl.col("killed").any() & (pl.col("came").sum() < 0)).alias("cut"),
            height.max().alias("last_s"),
            (moved * height).sum().alias("weighted_s"),
            moved.filter(height.is_not_null()).sum().alias("moved"),
        )
    )
    cut, came = pl.col("cut"), pl.col("came")
    counted = counted.with_columns(
        pl.when(cut).then(0).otherwise(came).alias("arrived"),
        pl.when(cut).then(0.0).otherwise(pl.col("paced_arrived")).alias("paced_arrived"),
        pl.when(cut).then(-came).otherwise(0).alias("uncounted"),
    )
    # what moved the backlog decides, as a queue that doesn't change is reported only now and then
    by_moves = pl.col("weighted_s").sum() / pl.col("moved").sum()
    at = pl.when(pl.col("moved").sum() > 0).then(by_moves).otherwise(pl.col("last_s").max())
    return (
        with_whole(counted)
        .group_by(*LINE, "grain", maintain_order=True)
        .agg(pl.col(SUMS).sum(), at.alias("reported_at"))
        .with_columns((seconds(pl.col("grain")) + pl.col("reported_at")).alias("reported_at"))
        .sort(*LINE, "grain")
    )


def _changes(levels: pl.DataFrame, ends: Extent, span: Span) -> pl.DataFrame:
    """Return a row per queue, epoch and grain in which it was reported or superseded: the growth of counters, `backlog`
    and `in_flight` since the previous row, and `came`, the arrivals that follow from it. `killed` if a later epoch took
    over without a final report. `reported_s` is when the queue was last reported, in s after the grain's start.
    """
    over = pl.col("grain") >= pl.col("superseded")
    handed_over = pl.col("handed_over")
    here = pl.col("last_at") >= pl.col("grain")
    known = _with_its_end(levels).with_columns(
        # an older release lacks some: they are null
        pl.col(CUMULATIVE).cum_max().forward_fill().over("queue"),
        over.fill_null(value=False).alias("over"),
        (over | handed_over).fill_null(value=False).alias("final"),
        (over & ~handed_over).fill_null(value=False).alias("killed"),
        pl.when(over).then(0).otherwise(pl.col("backlog")).alias("backlog"),
        pl.when(over & ~handed_over).then(0).otherwise(pl.col("in_flight")).alias("in_flight"),
        counts_from_0(pl.col("first_number").first().over("queue")).alias("base"),
        pl.when(here).then(seconds(pl.col("last_at") - pl.col("grain"))).alias("reported_s"),
    )
    return _divided(_compute_growth(known), ends, span)


def _with_its_end(levels: pl.DataFrame) -> pl.DataFrame:
    """Add a row at the grain in which the next epoch began, unless there is one: the old epoch's backlog ends there."""
    rows = levels.sort("queue", "grain")
    grain, end = pl.col("grain"), pl.col("superseded")
    following = grain.shift(-1).over("queue")
    wanted = (grain < end) & (following.is_null() | (following > end))
    return pl.concat([rows, rows.filter(wanted).with_columns(end.alias("grain"))]).sort("queue", "grain")


def _compute_growth(known: pl.DataFrame) -> pl.DataFrame:
    known = known.with_columns((pl.col("backlog") + pl.col("in_flight")).alias("waiting"))
    firsts = [*COUNTED, "waiting"]
    grown = [*CUMULATIVE, "waiting"]
    before = {name: pl.col(name).shift(1).over("queue") for name in {*grown, *_LEVELS}}

    def start(name: str, value: str) -> pl.Expr:
        return pl.coalesce(before[name], pl.when(pl.col("base")).then(0).otherwise(pl.col(value)))

    first = {name: pl.col(f"first_{name}") - start(name, f"first_{name}") for name in firsts}
    found = known.with_columns(
        _share_before().alias("share"),
        *((pl.col(name) - start(name, name)).alias(name) for name in grown),
        *(pl.col(name) - before[name].fill_null(0) for name in _LEVELS),
        *(pl.max_horizontal(0, first[name]).alias(f"first_{name}") for name in COUNTED),
        first["waiting"].alias("first_waiting"),
    )
    return found.with_columns(
        total([*ENDED, "waiting"]).alias("came"),
        total([*(f"first_{name}" for name in ENDED), "first_waiting"]).alias("first_came"),
    )


def _share_before() -> pl.Expr:
    """Return the share of the first difference that belongs to the grain before; 0 where it can't be divided: the first
    report of an epoch counts what it took over, and after the next epoch's first one its backlog doesn't count.
    """
    grain, first_at = pl.col("grain"), pl.col("first_at")
    previous_at, previous_over = (pl.col(name).shift(1).over("queue") for name in ("last_at", "over"))
    began = first_at - micros(pl.col("first_span_s").fill_null(0.0))
    known = pl.when(pl.col("base") & (pl.col("since") <= began)).then(began)
    previous = pl.coalesce(previous_at, known)
    start = pl.when(previous.is_not_null()).then(pl.max_horizontal(previous, began))
    divided = ~previous_over.fill_null(value=False) & (start < grain) & (first_at >= grain)
    return pl.when(divided).then((grain - start) / (first_at - start)).fill_null(0.0)


def _divided(grown: pl.DataFrame, ends: Extent, span: Span) -> pl.DataFrame:
    """Move the share of each first difference to the grain before, in whole messages."""
    parts = (*COUNTED, "came")
    moved = [
        (pl.col("share") * pl.col(f"first_{name}"))
        .round(mode="half_away_from_zero")
        .cast(pl.Int64)
        .alias(f"first_{name}")
        for name in parts
    ]
    grown = grown.with_columns(moved)
    later = grown.with_columns(pl.col(name) - pl.col(f"first_{name}") for name in parts)
    early = grown.filter(pl.any_horizontal(pl.col(f"first_{name}") != 0 for name in parts)).with_columns(
        pl.lit(value=False).alias("killed"),
        pl.col("grain") - span.grain_s * MICROS,
        pl.lit(None, pl.Float64).alias("reported_s"),
        *(pl.col(f"first_{name}").alias(name) for name in parts),
        *(pl.lit(0).cast(grown.schema[name]).alias(name) for name in (*CUMULATIVE, *_LEVELS) if name not in parts),
    )
    paced = {"arrived": pl.col("came"), **{name: total(list(names)) for name, names in _PACED.items()}}
    return pl.concat([later, early]).with_columns(
        (column * _pace(ends, span)).alias(f"paced_{name}") for name, column in paced.items()
    )


def _pace(ends: Extent, span: Span) -> pl.Expr:
    """Return what a row's growth is multiplied by for rates. A node that goes on reported the newest window up to its
    last record, but the window is covered up to the last record of all nodes.
    """
    newest = floor_to(ends.end, span.window_s)
    length = (ends.end - max(newest, ends.start)) / MICROS
    lag = seconds(ends.end - pl.col("run_to"))
    goes_on = ~pl.col("final") & (lag > 0) & (lag <= _NEXT_SPANS * pl.col("run_span_s")) & (lag < length)
    stretched = pl.when((pl.col("grain") >= newest) & goes_on).then(
        pl.min_horizontal(_MOST_PACE, length / (length - lag))
    )
    return stretched.fill_null(1.0)
