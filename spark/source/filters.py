"""Narrows reads by Spark's filters. Pure. Spark checks each row afterwards, so a narrowed read may return too many
rows, but must not leave out a row that a filter would keep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from evenlane.spark.source.options import ALWAYS, TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECOND = 1_000_000_000
_CLOCKS = 600 * _SECOND  # maximum difference between a node's and the server's clock, or delay of a record
_TIMES = {"stored": 0, "died_at": 0, "at": _CLOCKS}
_NAMES = ("project", "kind", "partition", "node")


@dataclass(frozen=True)
class ReadFilter:
    """Read only messages with one of these values; None: any value."""

    span: TimeRange = ALWAYS
    project: frozenset[Any] | None = None
    kind: frozenset[Any] | None = None
    partition: frozenset[Any] | None = None
    node: frozenset[Any] | None = None


def narrow(filters: Iterable[Filter], narrow: ReadFilter) -> ReadFilter:
    """Narrow by all filters; those that don't help are ignored."""
    for each in filters:
        narrow = _by(each, narrow)
    return narrow


def _by(given: Filter, narrow: ReadFilter) -> ReadFilter:
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    name = ".".join(attribute)
    if name in _NAMES and isinstance(given, (EqualTo, In)):
        values = frozenset([given.value] if isinstance(given, EqualTo) else given.value)
        before = getattr(narrow, name)
        found: dict[str, Any] = {name: values if before is None else values & before}
        return replace(narrow, **found)
    if name in _TIMES and isinstance(getattr(given, "value", None), datetime):
        return replace(narrow, span=intersect(narrow.span, _span(given, _TIMES[name])))
    return narrow


def _span(given: Filter, slack: int) -> TimeRange:
    at = _unix_ns(given.value)  # type: ignore[attr-defined]
    if isinstance(given, (GreaterThan, GreaterThanOrEqual)):
        return TimeRange(since=at - slack)
    if isinstance(given, (LessThan, LessThanOrEqual)):
        return TimeRange(until=at + slack + 1_000)
    return TimeRange(at - slack, at + slack + 1_000) if isinstance(given, EqualTo) else TimeRange()


def intersect(one: TimeRange, other: TimeRange) -> TimeRange:
    """Return the intersection."""
    since = [each.since for each in (one, other) if each.since is not None]
    until = [each.until for each in (one, other) if each.until is not None]
    return TimeRange(max(since, default=None), min(until, default=None))


def _unix_ns(at: datetime) -> int:
    """Convert to unix ns. Sessions in UTC, as those of reports, return naive times."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) * 1_000
