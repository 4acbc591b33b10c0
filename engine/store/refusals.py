"""Checks of requests that both adapters refuse with the same error, and the errors themselves."""

from __future__ import annotations

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_duration
from evenlane.engine.core.ports import Refused, TooLarge
from evenlane.engine.errors import ConfigError, hint

_SECOND = 1_000_000_000


def too_large(size: int, limit: int) -> TooLarge | None:
    """The error for a message of `size` bytes, headers and body together; None up to `limit`."""
    return TooLarge(f"{size} bytes are more than the server's {limit}") if size > limit else None


def check_retention(stream: str, seconds: float, window: int) -> int:
    """The retention in ns. Raises Refused if it is shorter than the stream's duplicate window (ns)."""
    if (age := int(seconds * _SECOND)) < window:
        raise Refused(
            f"stream {stream} has a duplicate window of {format_duration(window / _SECOND)}, and keeps what it holds"
        )
    return age


def missing_stream(cluster: str, stream: str) -> ConfigError:
    """The error for a stream of a named subscription that isn't there. No node creates it: the subscription may have
    been deleted.
    """
    name = names.subscription_of(cluster)
    create = hint(f"subscriptions create {name}", names.env_of(cluster))
    return ConfigError(f"stream {stream} of subscription {name!r} is missing: {create} recreates it")
