"""The tables of docs/reference/logs.md, with which captured log lines are compared."""

from __future__ import annotations

import re
from typing import Any

from tests.support.log_lines import ROOT, Line

_ROW = re.compile(r"^\| (`{1,2})(?P<event>.+?)\1 \| (?P<level>\w+) \| (?P<fields>[^|]*)\|")
_EVERYWHERE = {"event", "log_level", "exc_info"}


def tables() -> tuple[set[Line], set[Line]]:
    """The rows of decisions, and all others."""
    text = (ROOT / "docs/reference/logs.md").read_text()
    decisions, _, others = text.partition("## Decisions")[2].partition("## All others")
    return _rows(decisions), _rows(others)


def _rows(text: str) -> set[Line]:
    rows = [match for line in text.splitlines() if (match := _ROW.match(line))]
    return {
        Line(row["event"].replace("``", "`"), row["level"], frozenset(re.findall("`(.+?)`", row["fields"])))
        for row in rows
    }


DECISIONS, OTHERS = tables()


def logged(log: list[dict[str, Any]], event: str, **fields: Any) -> dict[str, Any]:
    """The last line of this event with these values. Its level and fields must be those in the table."""
    [*_, found] = [line for line in log if line["event"] == event and fields.items() <= line.items()]
    assert Line(event, found["log_level"], frozenset(found) - _EVERYWHERE) in DECISIONS
    return found


def events(log: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in log]
