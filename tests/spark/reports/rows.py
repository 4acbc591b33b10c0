"""Builds rows of METER and DEAD, as the data source returns them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.schemas import COUNTERS, DEAD, METER

START = dt.datetime(2026, 3, 1, 10, 0, tzinfo=dt.UTC)
INTERVAL_S = 10.0
_HEAD = {
    "version": 1, "node": "a", "run": 1, "after": 0, "span_s": INTERVAL_S, "slots": 8, "partition": 0, "epoch": 1,
    "since": START, "closed": False, "qps": 10.0, "may_use": 10.0, "weight": 1.0, "group": 0, "priority": "mid",
    "backlog": 0, "in_flight": 0, **dict.fromkeys(COUNTERS, 0), "ran_s": 0.0, "dwelt_s": 0.0, "waits": [],
}  # fmt: skip


def after(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def meter(seconds: float, **columns: Any) -> tuple[Any, ...]:
    """A row at `seconds` after START; by default, `number` and `sequence` count the intervals."""
    number = round(seconds / INTERVAL_S) + 1
    row = {**_HEAD, "at": after(seconds), "stored": after(seconds), "number": number, "sequence": number, **columns}
    assert not row.keys() - set(METER.names)
    return tuple(row.get(name) for name in METER.names)


def empty(seconds: float, **columns: Any) -> tuple[Any, ...]:
    """A row of a record without queues, or of a message that is no record."""
    head = ("sequence", "stored", "version", "problem", "node", "run", "number", "after", "at", "span_s", "slots")
    nothing = dict.fromkeys(name for name in METER.names if name not in head)
    return meter(seconds, **{**nothing, **columns})


def dead(seconds: float, project: str, reason: str | None) -> tuple[Any, ...]:
    row = {"died_at": after(seconds), "project": project, "reason": reason}
    return tuple(row.get(name) for name in DEAD.names)


def flat(waits: Any) -> Any:
    """Return WAIT_LISTS as WAIT_LEVELS: a row for each bucket."""
    return waits.select(*(name for name in waits.columns if name != "waits"), F.inline("waits"))
