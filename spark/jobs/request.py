"""What a report is asked for: its period, and what it reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.spark.out.document import ReportLinks
from evenlane.spark.reports.schemas import LEAD_S
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FORMATS = ("html", "parquet", "json")
_WINDOWS = {"5m": 72, "1h": 24, "1d": 7}  # windows reported by default


class ReportRequest(NamedTuple):
    """Parameters of a report. `source` are options of the data source that locate NATS; None: only the archive is read.
    `topics` are the present topics by project, in the format of `evenlane topics apply`; None: unknown. `paused_by`
    says who paused topics, by project; `deleted` has the states of deleted topics that messages keep. `cache` is the
    folder of the record cache; None: it isn't used. `subscription` is the one that `source` names; None: the unnamed
    one.
    """

    out: Path
    env: str
    source: Mapping[str, str] | None
    window: str = "1h"
    formats: Sequence[str] = FORMATS
    archive: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    targets: Targets = Targets()
    topics: Mapping[str, Mapping[str, Any]] | None = None
    paused_by: Mapping[str, str] = MappingProxyType({})
    deleted: Mapping[str, str] = MappingProxyType({})
    links: ReportLinks = ReportLinks()
    cache: Path | None = None
    subscription: str | None = None


class Period(NamedTuple):
    """When a report is made, and what it is on. `since` is the start of a window."""

    now: datetime
    since: datetime
    until: datetime


def range_of(wanted: ReportRequest, now: datetime) -> tuple[datetime, datetime]:
    """Return the time range, starting with a whole window."""
    length = SPANS[wanted.window].window_s
    until = wanted.until or now
    since = wanted.since or until - timedelta(seconds=length * (_WINDOWS[wanted.window] - 1))
    return datetime.fromtimestamp(since.timestamp() // length * length, UTC), until


def period_of(wanted: ReportRequest) -> Period:
    """Return the period. It ends now: the stream grows meanwhile, and all reads must see the same messages."""
    now = datetime.now(UTC)
    return Period(now, *range_of(wanted, now))


def options_of_meter(wanted: ReportRequest, period: Period) -> dict[str, str]:
    since = period.since - timedelta(seconds=LEAD_S)
    options = {"what": "meter", "since": _instant(since), "until": _instant(period.until), **(wanted.source or {})}
    return options | ({"archive": wanted.archive} if wanted.archive else {})


def options_of_dead(source: Mapping[str, str], period: Period) -> dict[str, str]:
    """Return options for dead letters, of which there may be no stream yet."""
    since, until = _instant(period.since), _instant(period.until)
    return {"what": "dead", "missing": "empty", "since": since, "until": until, **source}


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
