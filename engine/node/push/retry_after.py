"""Parses `Retry-After` (RFC 9110, 10.2.3): a number of seconds, or a date. Pure: the time is an argument."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

LEAST_S, MOST_S = 1.0, 3_600.0

_SECONDS = re.compile(r"[0-9]{1,18}", re.ASCII)
# IMF-fixdate, and the two obsolete forms that recipients must still accept.
_DATE = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}",
    re.ASCII,
)


def pause_s(value: str, now: float) -> float | None:
    """The requested pause in seconds, from 1 (for an instant in the past, too) to 3,600. `now` in unix s. None if the
    value is malformed.
    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(MOST_S, max(LEAST_S, float(value)))
    if not _DATE.fullmatch(value):
        return None
    try:
        at = parsedate_to_datetime(value)
    except ValueError:  # a 31st of February
        return None
    return min(MOST_S, max(LEAST_S, at.replace(tzinfo=UTC).timestamp() - now))
