"""Durations and instants in readable form: `5s`, `10m`, `3d`; `2026-01-31T08:00:00Z`."""

import math
import re
from datetime import UTC, datetime

from evenlane.engine.base.numbers import format_number
from evenlane.engine.errors import ConfigError

_SECOND = 1_000_000_000
MAX_SECONDS = 100 * 365 * 86_400.0
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?) ?(|ms|s|m|h|d)", re.ASCII)
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
# Unix ns must fit into 64 bits signed, which end in the year 2262.
_FIRST_YEAR, _LAST_YEAR = 1970, 2261


def parse_duration(value: str | float) -> float:
    """Parse seconds from `500ms`, `5s`, `10m`, `2h`, `3d` or a plain number of seconds.

    Raises ConfigError for any other value, and for values that are negative, not finite or above 100 years.
    """
    seconds = _seconds(value)
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise ConfigError(f"{_format_value(value)} is not a duration between 0 and 36500d")
    return seconds


def _seconds(value: str | float) -> float:
    match value:
        case str() if match := _DURATION.fullmatch(value.strip()):
            return float(match[1]) * _UNITS[match[2]]
        case int() | float() if not isinstance(value, bool):
            return float(min(value, MAX_SECONDS + 1)) if value > 0 else float(max(value, -1))
    raise ConfigError(
        f"{_format_value(value)} is not a duration: write 500ms, 5s, 10m, 2h or 3d, or a number of seconds"
    )


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit that gives a whole number, or in seconds: `30d`, `90s`, `0.25s`.
    `parse_duration` reads the same number from it.
    """
    for unit in ("d", "h", "m"):
        count = seconds / _UNITS[unit]
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    return f"{format_number(seconds)}s"


def parse_instant(text: str) -> int:
    """Parse RFC 3339, such as `2026-01-31T08:00:00Z` or `2026-01-31T08:00:00.5+01:00`, to Unix time in ns.

    The offset is required, as a local time would mean another instant on each machine. Exact to the nanosecond. Raises
    ConfigError for any other text, a day or hour that doesn't exist, or a year outside 1970 to 2261.
    """
    match = _INSTANT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{_format_value(text)} is not an RFC 3339 time: write 2026-01-31T08:00:00Z or 2026-01-31T08:00:00+01:00"
        )
    day, clock, fraction, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{offset.upper()}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{_format_value(text)} is not a time that exists: {error}") from None
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        raise ConfigError(f"{_format_value(text)} is not a time between 1970 and 2261")
    return int(moment.timestamp()) * _SECOND + int((fraction or "").ljust(9, "0"))


def parse_past(text: str, now: int) -> int:
    """Parse RFC 3339, or a duration before `now` (unix ns) such as `6h`, to unix ns. Raises ConfigError."""
    try:
        return now - int(parse_duration(text) * _SECOND)
    except ConfigError:
        pass
    try:
        return parse_instant(text)
    except ConfigError:
        raise ConfigError(
            f"{_format_value(text)} is neither a time such as 2026-01-31T08:00:00Z nor how long ago, such as 6h"
        ) from None


def format_instant(unix_ns: int) -> str:
    """Format as RFC 3339, in UTC and to the millisecond."""
    return datetime.fromtimestamp(unix_ns // 1_000_000 / 1_000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
