"""Representations of a waiting message, with its payload or without, and the node's memory budget for both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane

Entry: TypeAlias = "tuple[Lane, int, int, bytes, bytes, int, bool]"
"""A ready message, with its payload: its lane, its sequence there, the store's time of arrival (unix ns), headers,
body, the size of headers and body (bytes), and whether the headers may contain one of Evenlane's own, such as an
expiry.

It is a plain tuple, because every message creates and unpacks one: a named tuple takes five times as long to create,
and Python can't specialise its unpacking. The last two fields are computed on arrival, while the bytes are in the CPU
cache.
"""


def entry_of(lane: Lane, sequence: int, at: int, headers: bytes, body: bytes) -> Entry:
    """Make the entry of a stored message."""
    return lane, sequence, at, headers, body, len(headers) + len(body), h.PREFIX in headers


@dataclass
class MemoryBudget:
    """The limits of a node's memory, and how much of it is in use.

    Invariant: `used_bytes` is the size (bytes) of all payloads in memory, over all queues: those ready, and those that
    wait behind their keys in an ordered topic. A message whose turn is near is read even beyond `payload_bytes`.
    """

    payload_bytes: int = 64 << 20
    """Payloads that all queues together may hold (bytes)."""
    read_ahead: int = 256
    """Messages that one queue prefetches at most."""
    index: int = 65_536
    """Sequences that one queue keeps in memory; further messages are spilled, that is, only counted."""
    used_bytes: int = 0

    queue_bytes: int = 0
    """Ready payloads that one queue may hold beyond its first message (bytes). 0 derives it from `payload_bytes`."""

    def __post_init__(self) -> None:
        self.queue_bytes = self.queue_bytes or max(64 << 10, self.payload_bytes // 64)


class MessageRef(NamedTuple):
    """The location of a message, without its payload."""

    lane: "Lane"
    sequence: int
