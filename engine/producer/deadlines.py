"""Computes when a message is due and when it expires, in unix ns by the store's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evenlane.engine.base.durations import MAX_SECONDS
from evenlane.engine.errors import InvalidPut

if TYPE_CHECKING:
    from evenlane.engine.producer.put import Put

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 2**63 - 1  # ns, in the year 2262
_CLOCKS_APART = 60 * SECOND  # a due time up to this long ago means now: the caller's and the store's clocks may differ


def due_of(put: Put, now: int) -> int:
    """Return when the message is due, 0 for now. Raises InvalidPut."""
    if put.delay is not None:
        if put.due is not None:
            raise InvalidPut("delay and due are both given: give only one of them")
        return _add_seconds("delay", put.delay, now)
    if put.due is None:
        return 0
    due = _instant(put.due)
    if due < now - _CLOCKS_APART:
        raise InvalidPut(
            f"due {_time(due)} is {(now - due) // SECOND:,} s in the past, by the store's clock: messages more than "
            f"{_CLOCKS_APART // SECOND} s late are refused, so leave due out to have it handled now"
        )
    return due if due > now else 0


def check(put: Put) -> None:
    """Raise InvalidPut for errors that don't depend on the current time."""
    expiry_of(put, due_of(put, 0), 0)


def expiry_of(put: Put, due: int, now: int) -> int:
    """Return when the message expires, 0 if the topic decides. Raises InvalidPut."""
    if put.ttl is None:
        return 0
    expires = _add_seconds("ttl", put.ttl, due or now)
    if not expires:
        raise InvalidPut("ttl 0 would make the message expire at once: give more than 0 seconds")
    return expires


def _add_seconds(what: str, seconds: float, start: int) -> int:
    """Return `start` + `seconds`; 0 for 0 seconds."""
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not 0 <= seconds <= MAX_SECONDS:
        raise InvalidPut(f"{what} {format_value(seconds)} is not a number of seconds from 0 to {MAX_SECONDS:.0f}")
    nanoseconds = int(seconds * SECOND)
    if start + nanoseconds > _LAST:
        raise InvalidPut(f"{what} {format_value(seconds)} from then ends after the year 2262")
    return start + nanoseconds if nanoseconds else 0


def _instant(due: int | datetime) -> int:
    if isinstance(due, datetime):
        if due.utcoffset() is None:
            raise InvalidPut(f"due {due.isoformat()} has no time zone: give one, such as datetime.now(UTC)")
        instant = (due - _EPOCH) // timedelta(microseconds=1) * 1_000
        if not 0 <= instant <= _LAST:
            raise InvalidPut(f"due {due.isoformat()} is not between the years 1970 and 2262")
        return instant
    if isinstance(due, bool) or not isinstance(due, int) or not 0 <= due <= _LAST:
        raise InvalidPut(
            f"due {format_value(due)} is neither a whole number of ns since 1970 up to 2**63 - 1 nor a datetime"
        )
    return due


def _time(instant: int) -> str:
    return (_EPOCH + timedelta(microseconds=instant // 1_000)).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_value(value: object) -> str:
    """Format a value for an error message, at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:
        text = "of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
