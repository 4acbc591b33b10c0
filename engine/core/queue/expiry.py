"""Decides whether a message has outlived its time to live. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import read_instant

if TYPE_CHECKING:
    from evenlane.engine.core.queue.entry import Entry


def is_expired(entry: Entry, ttl: int, store_now: int) -> bool:
    """Whether a message has expired by the store's clock (`store_now`, unix ns).

    A message with an expiry of its own expires at that instant, any other `ttl` ns after its arrival; a `ttl` of 0
    means never. A time to live begins again when the subscription is reset, an instant stays.
    """
    headers, since = entry[3], entry[2]
    if entry[6]:
        expires = read_instant(headers, h.EXPIRES, 0)
        if expires:
            return expires <= store_now
        since = read_instant(headers, h.DUE, since)  # a delayed message's time to live begins when it is due (K5)
    return 0 < ttl <= store_now - max(since, entry[0].log.reset)
