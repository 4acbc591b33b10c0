"""Parses where a subscription begins: with new messages, with the first that is stored, or at a time. Pure."""

from __future__ import annotations

from typing import NamedTuple

from evenlane.engine.base.durations import parse_past
from evenlane.engine.errors import ConfigError

_LONGEST = 40  # characters that an error shows
NEW, FIRST = "new", "first"


class StartPoint(NamedTuple):
    """The messages that a subscription gets: those that were stored at `at` (unix ns) or later; 0: all that are
    stored; None: none that was stored before. `text` is what the command said.
    """

    text: str
    at: int | None


def parse_start(option: str, text: str, now: int) -> StartPoint:
    """Parse the value of `option`: `new`, `first`, RFC 3339, or how long before `now` (unix ns). Raises ConfigError,
    also for a time in the future.
    """
    if text == NEW:
        return StartPoint(text, None)
    if text == FIRST:
        return StartPoint(text, 0)
    try:
        at = parse_past(text, now)
    except ConfigError:
        shown = repr(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!r}..."
        raise ConfigError(
            f"{option}: {shown} is neither {NEW}, {FIRST}, a time such as 2026-01-31T08:00:00Z, nor how long ago, such"
            " as 6h"
        ) from None
    if at > now:
        raise ConfigError(f"{option}: {text} is in the future: name a time that has passed, or {NEW}")
    return StartPoint(text, max(1, at))
