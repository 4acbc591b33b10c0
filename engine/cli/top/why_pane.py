"""Formats why a tenant waits, as the lines of a pane. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.stats.forecast import format_spoken
from evenlane.engine.core.status.lines import status_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def why_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines from a document of `evenlane why`."""
    oldest = answer["oldest_seconds"]
    since = f", the oldest for {format_spoken(oldest)}" if oldest is not None else ""
    yield f"{answer['project']}: {answer['backlog']:,} wait{since}; {answer['in_flight']:,} in flight"
    yield from status_lines(answer)
    sentences: dict[str, str] = {}
    for part in answer["priorities"]:
        yield from _priority(part)
        sentences.update({each["reason"]: each["sentence"] for each in part["reasons"]})
    yield from (f"{reason}: {sentence}" for reason, sentence in sentences.items())
    forecast = answer["forecast"]
    yield f"rates: {answer['rates']['sentence']}"
    yield f"forecast: {forecast['sentence']}"
    if "resumed_sentence" in forecast:
        yield f"  {forecast['resumed_sentence']}"
    yield from (f"note: {note}" for note in answer["notes"])


def _priority(part: Mapping[str, Any]) -> Iterator[str]:
    if not part["waiting"] and not part["delayed"] and not part["in_flight"]:
        return
    figures = [f"{part['waiting']:,} wait"]
    if part["oldest_seconds"] is not None:
        figures.append(f"the oldest for {format_spoken(part['oldest_seconds'])}")
    figures.append(f"{part['in_flight']:,} in flight")
    if part["delayed"]:
        figures.append(f"{part['delayed']:,} not due")
    groups = ", ".join(f"{each['reason']} ({each['groups']:,})" for each in part["reasons"])
    yield f"  {part['priority']}: {', '.join(figures)}{f'; groups wait for {groups}' if groups else ''}"
