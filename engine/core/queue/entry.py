"""A message at hand and where it lies, and the node's budget of memory for both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane

Entry: TypeAlias = "tuple[Lane, int, int, bytes, bytes, int, bool]"
"""One message at hand: its lane, its sequence there, the store's time of arrival (unix ns), headers, body, the bytes of
both, and whether its headers may hold one of ours, such as an expiry.

It is a plain tuple, because each message makes and reads one: a named tuple takes five times as long to make, and
Python can't specialise its unpacking. The last two fields are set on arrival, while the bytes are in the cache.
"""


def entry_of(lane: Lane, sequence: int, at: int, headers: bytes, body: bytes) -> Entry:
    """The entry of a message as the store has it."""
    return lane, sequence, at, headers, body, len(headers) + len(body), h.PREFIX in headers


@dataclass
class MemoryBudget:
    """Bounds of a node's memory. `held` is what all hands hold now, in bytes."""

    payload_bytes: int = 64 << 20
    read_ahead: int = 256
    index: int = 65_536
    held: int = 0

    queue_bytes: int = 0

    def __post_init__(self) -> None:
        # what one queue may hold at hand beyond its first message
        self.queue_bytes = self.queue_bytes or max(64 << 10, self.payload_bytes // 64)


class MessageRef(NamedTuple):
    """Where a message lies, without its payload."""

    lane: Lane
    sequence: int
