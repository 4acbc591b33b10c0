"""Parses the options of `spark.read.format("evenlane")` before anything is read (docs/reference/data-source.md)."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.export.connect import OPTIONS as ACCESS
from evenlane.engine.admin.export.connect import Settings, connect, parse_past
from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

WHAT = ("meter", "lanes", "dead")
_OWN = ("what", "since", "until", "partitions", "payload", "archive", "max_messages", "pushdown", "missing")
_MOST_PARTITIONS = 10_000


class TimeRange(NamedTuple):
    """A span of time in unix ns; None: open. `until` is exclusive."""

    since: int | None = None
    until: int | None = None


ALWAYS = TimeRange()


@dataclass(frozen=True)
class Options:
    """Parsed options. `partitions` is the maximum number of tasks, which is used if there is enough to read;
    `max_messages` limits a micro-batch of a stream. `live` says whether the server is read: not if only an `archive` is
    given. `pushdown`: a query's filters narrow the read. `missing_ok`: a missing stream gives no rows instead of an
    error.
    """

    settings: Settings
    what: str = "meter"
    span: TimeRange = ALWAYS
    partitions: int = 4
    payload: bool = False
    archive: str | None = None
    live: bool = True
    max_messages: int | None = None
    pushdown: bool = False
    missing_ok: bool = False


def parse(given: Mapping[str, str], default_partitions: int = 4) -> Options:
    """Parse options. Raises ConfigError, which names the option and valid values."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in (*ACCESS, *_OWN):
            near = difflib.get_close_matches(name, (*ACCESS, *_OWN), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join((*_OWN, *ACCESS))}"
            raise ConfigError(f"there is no option {name!r}; {hint}")
    what = options.get("what", "meter")
    if what not in WHAT:
        raise ConfigError(f"option what: {what!r} is none of {', '.join(WHAT)}")
    settings = connect({name: options[name] for name in ACCESS if name in options})
    if what == "lanes" and settings.subscription is not None:
        raise ConfigError("option subscription: what=lanes has what waits for the subscription without a name")
    archive = options.get("archive") or None
    if archive is not None and what != "meter":
        raise ConfigError(f"option archive: only records of what=meter are archived, not {what}")
    return Options(
        settings=settings,
        what=what,
        span=_span(options),
        partitions=_whole(options, "partitions", default_partitions, _MOST_PARTITIONS),
        payload=_parse_flag(options, "payload"),
        archive=archive,
        live=archive is None or "nats" in options,
        pushdown=_parse_flag(options, "pushdown"),
        missing_ok=_may_be_missing(options),
        max_messages=_whole(options, "max_messages", 0, 2**53) or None,
    )


def _span(options: Mapping[str, str]) -> TimeRange:
    since, until = (_instant(name, options[name]) if options.get(name) else None for name in ("since", "until"))
    if since is not None and until is not None and until <= since:
        raise ConfigError(f"option until: {options['until']} is not later than since, {options['since']}")
    return TimeRange(since, until)


def _instant(name: str, text: str) -> int:
    try:
        return parse_past(text, time.time_ns())
    except ConfigError as error:
        raise ConfigError(f"option {name}: {error}") from None


def _whole(options: Mapping[str, str], name: str, default: int, most: int) -> int:
    if name not in options:
        return default
    text = options[name]
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise ConfigError(f"option {name}: {text!r} is no whole number from 1 to {most:,}")
    return int(text)


def _may_be_missing(options: Mapping[str, str]) -> bool:
    text = options.get("missing", "error").lower()
    if text not in ("error", "empty"):
        raise ConfigError(f"option missing: {options['missing']!r} is neither error nor empty")
    return text == "empty"


def _parse_flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name}: {options[name]!r} is neither true nor false")
    return text == "true"
