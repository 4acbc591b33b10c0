"""Formats statuses for a terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.status.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def status_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines from the fields `status` and `also` of an answer about a project."""
    first = Status.read(answer["status"])
    yield f"status: {_headline(first)}"
    if first.remedy:
        yield f"  to do: {first.remedy}"
    for described in answer["also"]:
        status = Status.read(described)
        yield f"also: {_headline(status)}"
        if status.remedy and status.remedy != first.remedy:
            yield f"  to do: {status.remedy}"


def _headline(status: Status) -> str:
    """The sentence of some statuses begins with the label."""
    return status.sentence if status.sentence.startswith(status.label) else f"{status.label} - {status.sentence}"
