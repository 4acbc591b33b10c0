"""Rates how far the figures can be trusted: missing, duplicated, late or unreadable records, and wrong clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from evenlane.engine.base.plural import format_count
from evenlane.spark.reports.expressions import MICROS, floor_to, micros
from evenlane.spark.reports.schemas import QUALITY
from evenlane.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.timeline import Timeline

_SUMS = ("records", "missing", "duplicated", "late", "skewed", "unreadable", "newer")
_SILENT_SPANS = 6
_SILENT_S = 60.0


def quality(
    records: pl.DataFrame,
    timeline: Timeline,
    uncounted: Mapping[int, int],
    span: Span,
    since: dt.datetime | None = None,
    now: dt.datetime | None = None,
) -> pa.Table:
    """Compute QUALITY from NODE_RECORDS, in the order of windows. `uncounted` has the messages of all tenants that went
    uncounted, by the window's start in unix µs. Windows that begin before `since` are left out. Without `now`, a node
    is silent if others have continued.
    """
    killed, silent = _find_killed(timeline, span.window_s), _find_silent(records, timeline, now)
    last = floor_to(timeline.extent.end, span.window_s)  # nothing is known of the time after it
    first = 0 if since is None else int(since.timestamp()) * MICROS
    rows = [
        each
        | {
            "window_end": each["window_start"] + span.window_s * MICROS,
            "killed": killed.get(each["window_start"], []),
            "silent": silent if each["window_start"] == last else [],
            "uncounted": uncounted.get(each["window_start"], 0),
        }
        for each in _sum_up(records).filter(pl.col("window_start") >= first).to_dicts()
    ]
    return pa.Table.from_pylist([each | {"sentence": _describe(each)} for each in rows], arrow_schema(QUALITY))


def _sum_up(records: pl.DataFrame) -> pl.DataFrame:
    return (
        records.group_by("window_start")
        .agg(
            pl.col(_SUMS).sum(),
            (pl.col("records") > 0).sum().alias("nodes"),
            pl.col("node").filter(pl.col("skewed") > 0).unique().sort().alias("skewed_nodes"),
        )
        .sort("window_start")
    )


def _find_killed(timeline: Timeline, window_s: int) -> dict[int, list[dict[str, Any]]]:
    """Return the partitions' epochs without a final report, by the window in which the next one began."""
    ended = timeline.epochs.filter(
        pl.col("named") & pl.col("superseded").is_not_null() & ~pl.col("handed_over")
    ).select(floor_to(pl.col("superseded"), window_s).alias("window_start"), "node", "partition")
    found: dict[int, list[dict[str, Any]]] = {}
    for window, node, partition in ended.unique().sort(ended.columns).iter_rows():
        found.setdefault(window, []).append({"node": node, "partition": partition})
    return found


def _find_silent(records: pl.DataFrame, timeline: Timeline, now: dt.datetime | None) -> list[str]:
    """Return the nodes that own partitions and have gone silent."""
    owning = timeline.epochs.filter(pl.col("named") & pl.col("superseded").is_null() & ~pl.col("handed_over"))
    end = max(timeline.extent.end, 0 if now is None else int(now.timestamp() * MICROS))
    patience = pl.max_horizontal(_SILENT_S, _SILENT_SPANS * pl.col("last_span_s").fill_null(0.0))
    silent = (
        records.filter(pl.col("last_event").is_not_null())
        .sort("last_event")
        .group_by("node")
        .agg(pl.col("last_event", "last_span_s").last())
        .join(owning, on="node", how="semi")
        .filter(pl.col("last_event") + micros(patience) < end)
    )
    return silent["node"].sort().to_list()


def _describe(row: Mapping[str, Any]) -> str:
    """Say in a sentence what is wrong."""

    def count(name: str, noun: str, one: str, many: str) -> str:
        return format_count(row[name], noun, one, many) if row[name] else ""

    killed, silent = dict.fromkeys(each["node"] for each in row["killed"]), row["silent"]
    parts = [
        f"{', '.join(killed)} ended without a last word: its last interval isn't counted, and what it hadn't settled"
        f" may be counted twice{_uncounted(row['uncounted'])}"
        if killed
        else "",
        f"{', '.join(silent)} has gone silent" if silent else "",
        count("missing", "record", "is missing: the next one includes its figures",
              "are missing: the next ones include their figures"),
        count("duplicated", "record", "came twice, and counts once", "came twice, and count once"),
        count("late", "record", "came late", "came late"),
        f"clocks are wrong on {', '.join(row['skewed_nodes'])}: the server's counts" if row["skewed"] else "",
        count("newer", "record", "is of a newer release, and can't be read by this one",
              "are of a newer release, and can't be read by this one"),
        count("unreadable", "message", "isn't a record", "aren't records"),
    ]  # fmt: skip
    return f"{'; '.join(filter(None, parts)) or 'Nothing is missing'}."


def _uncounted(count: int) -> str:
    return f" ({format_count(count, 'message')} went uncounted for sure)" if count else ""
