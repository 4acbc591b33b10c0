"""Decides which partition a node closes next, of those that its plan takes away. Pure.

A partition has no owner between the old owner's close and the new owner's start. Partitions that move at the same time
slow each other down: their pauses are as long as the whole move. So they move one after another, and the node serves
each until its turn comes. The next one follows when the new owner is seen to serve the last one, at the latest
`MOST_WAIT_NS` after the last close, and at the earliest one gap after it. The gap leaves time to partitions that don't
move: a move is spread over `SPREAD_NS`, one of a few partitions over less.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_WAIT_NS = 500_000_000
SPREAD_NS = 4_000_000_000
MOST_GAP_NS = 400_000_000
STEPS = 32  # if more partitions than this move, several move at the same time


@dataclass(slots=True)
class Departures:
    """The partitions that leave a node. Times are monotonic ns.

    Invariant: `_waiting` and `_moving` are disjoint. A partition in `_waiting` is still served here. One in `_moving`
    is closed, and its new owner hasn't been seen to serve it; it counts until the given time. At most `_at_once`
    partitions are moving.
    """

    _waiting: dict[int, None] = field(default_factory=dict)  # in order of departure
    _moving: dict[int, int] = field(default_factory=dict)  # partition -> until when it counts
    _at_once: int = 1
    _gap: int = MOST_GAP_NS  # between two closes
    _next_at: int = 0  # earliest time of the next close

    def __bool__(self) -> bool:
        """Whether any partition waits."""
        return bool(self._waiting)

    def expect(self, count: int) -> None:
        """A new plan takes away `count` partitions."""
        self._at_once = max(1, -(-count // STEPS))
        self._gap = min(MOST_GAP_NS, SPREAD_NS // max(1, count))

    def add(self, partition: int) -> None:
        """The partition must leave."""
        self._waiting[partition] = None

    def discard(self, partition: int) -> None:
        """The partition stays, or is lost."""
        self._waiting.pop(partition, None)

    def note_arrival(self, partition: int) -> None:
        """The new owner serves the partition."""
        self._moving.pop(partition, None)

    def wake_at(self) -> int | None:
        """The time at which the next partition may close at the latest; None if none waits."""
        if not self._waiting:
            return None
        is_full = len(self._moving) >= self._at_once
        return max(self._next_at, min(self._moving.values()) if is_full else 0)

    def take_due(self, now: int, *, everything: bool = False) -> list[int]:
        """Remove and return the partitions to close now; all of them with `everything`."""
        if everything:
            gone, self._waiting = list(self._waiting), {}
            return gone
        taken: list[int] = []
        while (due := self.wake_at()) is not None and due <= now:
            self._moving = {p: until for p, until in self._moving.items() if until > now}
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            self._moving[partition] = now + MOST_WAIT_NS
            self._next_at = now + self._gap
            taken.append(partition)
        return taken
