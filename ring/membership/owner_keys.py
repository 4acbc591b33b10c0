"""The owner keys of all partitions, as last seen, and which of them are under no lease. Pure.

A living owner puts a key without a lease back under its lease, or can't trust that lease any more. So a key that has
been under no lease for long is nobody's, and may be deleted.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple


class Owner(NamedTuple):
    """An owner key as seen: its create-revision, the lease that it is attached to, its mod-revision."""

    epoch: int
    lease: int
    revision: int = 0


class KnownOwnerKeys(dict[int, Owner]):
    """The owner keys by partition. Times are monotonic ns; a key may be deleted after `clear_after` without a lease.

    Invariants:
    - `_clear_at` has the keys under no lease.
    - A timer in `_timers` is valid if it equals the time in `_clear_at` of its partition; others are stale.
    """

    def __init__(self, clear_after: int) -> None:
        super().__init__()
        self._clear_after = clear_after
        self._clear_at: dict[int, int] = {}
        self._timers: list[tuple[int, int]] = []  # (instant, partition)

    def see(self, partition: int, owner: Owner, now: int) -> None:
        self[partition] = owner
        if owner.lease:
            self._clear_at.pop(partition, None)
        elif partition not in self._clear_at:
            self.clear_later(partition, now)

    def remove(self, partition: int) -> None:
        self.pop(partition, None)
        self._clear_at.pop(partition, None)

    def clear_later(self, partition: int, now: int) -> None:
        at = self._clear_at[partition] = now + self._clear_after
        heappush(self._timers, (at, partition))

    def next_clear(self) -> tuple[int, int] | None:
        """The next instant at which a key may be deleted, and its partition."""
        while self._timers and self._clear_at.get(self._timers[0][1]) != self._timers[0][0]:
            heappop(self._timers)
        return self._timers[0] if self._timers else None
