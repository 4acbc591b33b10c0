"""Builds the document of report.json and of the page: the latest window in full, and plot data of earlier windows."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from evenlane.spark.out.attention import UNKNOWN_TOPICS, list_attention_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from evenlane.spark.out.attention import KnownTopics
    from evenlane.spark.reports.targets import Targets

Row = dict[str, Any]
MOST_POINTS = 20_000
"""Windows times tenants whose history is in the document, so that a browser opens it quickly (some 3 MB)."""
_COVERED = 1 / 6
_DIGITS = 5
_PLOTTED = (
    "project", "window_end", "backlog", "wait_p50_s", "wait_p95_s", "wait_p99_s", "arrival_rate", "drain_rate", "qps",
    "handled_rate", "failed_rate", "dead", "causes", "priorities",
)  # fmt: skip


class DocumentInput(NamedTuple):
    """Input of a document: rows of TENANTS, and of QUALITY in the order of windows (spark/reports/schemas.py). `noisy`
    computes NOISY from the tenants of a window.
    """

    tenants: pl.LazyFrame
    noisy: Callable[[pl.LazyFrame], pl.LazyFrame]
    quality: pa.Table


class ReportLinks(NamedTuple):
    """Addresses that the page links to: a node's status page, and the page of runbooks; empty: none."""

    page: str = ""
    runbooks: str = ""


class ReportProperties(NamedTuple):
    """Properties of a report. `window` is the requested name, such as `1h`; `length` is its duration; `topics` are
    those that etcd has; `subscription` is None for the unnamed one.
    """

    env: str
    made_at: datetime
    window: str
    length: timedelta
    targets: Targets
    topics: KnownTopics = UNKNOWN_TOPICS
    links: ReportLinks = ReportLinks()
    subscription: str | None = None


def document(made: DocumentInput, about: ReportProperties, most_points: int = MOST_POINTS) -> Row:
    """Build the document in JSON types: times are RFC 3339, unknown values are null. The latest window is the last one
    with data for at least a sixth of its length, if there is one: a window that has just begun says little.
    """
    windows = _windows(made.tenants, about)
    content: Row = {
        "made_at": plain(about.made_at), "env": about.env, "subscription": about.subscription, "window": about.window,
        "window_s": about.length.total_seconds(), "from": None, "to": None,
        "attention": [], "tenants": [], "windows": {"ends": [], "of": {}, "left_out": 0}, "noisy": [], "quality": [],
        "links": {"page": about.links.page.rstrip("/"), "runbooks": about.links.runbooks},
    }  # fmt: skip
    content["quality"] = [plain(each) for each in made.quality.to_pylist()]
    if not windows:
        return content
    latest = windows[-1]
    of_latest = made.tenants.filter(pl.col("window_end") == latest)
    rows = _rows(of_latest.sort("project"))
    for row in rows:
        row["priorities"] = sorted(row["priorities"] or (), key=lambda each: (each["target_s"], each["priority"]))
    for row in rows:
        row["failing_since"] = None
    for row, since in _find_failing_since(made.tenants, rows, windows):
        row["failing_since"] = since
    noticed = list_attention_items(rows, about.targets, about.env, about.topics, about.subscription or "")
    shown = _choose_shown(rows, [item["project"] for item in noticed], most_points // len(windows))
    return content | {
        "from": plain(windows[0] - about.length),
        "to": plain(latest),
        "attention": noticed,
        "tenants": [plain(row) for row in rows],
        "windows": {
            "ends": [int(min(_utc(end), about.made_at).timestamp()) for end in windows],  # none is in the future
            "of": _past(made.tenants, windows, shown),
            "left_out": len(rows) - len(shown),
        },
        "noisy": [plain(each) for each in _rows(made.noisy(of_latest).sort("project"))],
    }


def _find_failing_since(
    tenants: pl.LazyFrame, rows: Sequence[Row], windows: Sequence[datetime]
) -> Iterator[tuple[Row, datetime]]:
    """Yield the tenants of which everything fails in the latest window, with the start of the first of the windows in a
    row in which nothing succeeded.
    """
    failing = {row["project"]: row for row in rows if not row["handled"] and row["retried"] + row["dead"]}
    if not failing:
        return
    past = tenants.filter(pl.col("project").is_in([*failing])).select(
        "project", "window_start", "window_end", "handled", (pl.col("retried") + pl.col("dead")).alias("failed")
    )
    found: dict[str, dict[datetime, Any]] = {}
    for each in _rows(past):
        found.setdefault(each["project"], {})[each["window_end"]] = each
    for project, row in failing.items():
        since = row["window_start"]
        for end in reversed(windows):
            window = found[project].get(end)
            if window is None or window["handled"] or not window["failed"]:
                break
            since = window["window_start"]
        yield row, since


def plain(value: Any) -> Any:
    """Convert to JSON types."""
    match value:
        case float():
            return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
        case datetime():
            return _utc(value).isoformat(timespec="seconds").replace("+00:00", "Z")
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


def _windows(tenants: pl.LazyFrame, about: ReportProperties) -> list[datetime]:
    """Return the windows' ends, oldest first, without those after the latest."""
    covered = _rows(tenants.group_by("window_end").agg(pl.col("covered_s").max()).sort("window_end"))
    enough = [row["window_end"] for row in covered if row["covered_s"] >= about.length.total_seconds() * _COVERED]
    return [row["window_end"] for row in covered if not enough or row["window_end"] <= enough[-1]]


def _choose_shown(rows: Sequence[Row], noticed: Sequence[str], most: int) -> list[str]:
    """Return the projects whose history is included: those that need attention, then the busiest."""
    busiest = sorted(rows, key=lambda row: (-row["backlog"], -(row["arrived"] or 0)))
    return list(dict.fromkeys([*noticed, *(row["project"] for row in busiest)]))[: max(1, most)]


def _past(tenants: pl.LazyFrame, windows: Sequence[datetime], shown: Sequence[str]) -> Mapping[str, Row]:
    """Return the columns for plots, null where a window has no data of the tenant."""
    place = {end: number for number, end in enumerate(windows)}
    rows: dict[str, list[Any]] = {project: [None] * len(windows) for project in shown}
    for row in _rows(tenants.filter(pl.col("project").is_in(shown)).select(_PLOTTED)):
        if row["window_end"] in place:
            rows[row["project"]][place[row["window_end"]]] = row
    return {project: _columns(series) for project, series in rows.items()}


def _rows(frame: pl.LazyFrame) -> list[Row]:
    return frame.collect().to_dicts()


def _columns(series: Sequence[Any]) -> Row:
    def column(name: str) -> list[Any]:
        return [None if row is None else plain(row[name]) for row in series]

    return {
        "waiting": column("backlog"),
        "backlog": _nest(series, "priorities", "priority", "backlog"),
        "p50": column("wait_p50_s"), "p95": column("wait_p95_s"), "p99": column("wait_p99_s"),
        "arrival": column("arrival_rate"), "quota": column("qps"),
        "handled": column("handled_rate"), "failed": column("failed_rate"),
        "waited": _nest(series, "causes", "cause", "share"),
        "dead": column("dead"),
    }  # fmt: skip


def _nest(series: Sequence[Any], array: str, key: str, value: str) -> dict[str, list[Any]]:
    """Turn arrays of structs into a column per key; 0 where a window has only other keys."""
    counts = [None if row is None else {each[key]: plain(each[value]) for each in row[array] or ()} for row in series]
    keys = dict.fromkeys(name for each in counts if each for name in each)
    return {name: [None if each is None else each.get(name, 0) for each in counts] for name in keys}
