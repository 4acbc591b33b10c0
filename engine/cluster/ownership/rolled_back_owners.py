"""Tracks previous owners that an etcd rollback has erased, and how long they may serve. Pure; times are monotonic ns.

An owner serves for at most one lease TTL after etcd last confirmed its lease and owner key. Once a node has claimed the
partition, etcd can't confirm the earlier owner any more. The new owner therefore waits for one TTL from its claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.ring.membership.records import PastOwner

_SECOND = 1_000_000_000


class RolledBackOwners:
    """Rolled-back owners as one session knows them. `ttl` is the TTL of all leases, in seconds.

    Invariant: `_since` has the time of a partition's claim. A claim that follows a withdrawn one keeps the time of that
    one.
    """

    def __init__(self, ttl: int) -> None:
        self._ttl_ns = ttl * _SECOND
        self._since: dict[int, int] = {}  # partition -> time of its claim
        self._withdrawn: set[int] = set()  # partitions whose claim had too low an epoch
        self._ended: dict[int, set[PastOwner]] = {}

    def begin(self, partition: int, now: int) -> None:
        """Note that this node has claimed the partition."""
        if partition not in self._withdrawn:
            self._since[partition] = now
        self._withdrawn.discard(partition)

    def withdraw(self, partition: int) -> None:
        """Note that this node will claim the partition again: the time since its first claim still counts."""
        self._withdrawn.add(partition)

    def note_taken(self, partition: int) -> None:
        """Note that another node has claimed the partition: only the time since this node's next claim counts."""
        self._withdrawn.discard(partition)

    def find_deadline(self, partition: int) -> int:
        """Return the time until which another owner may serve the partition."""
        return self._since[partition] + self._ttl_ns

    def note(self, partition: int, owner: PastOwner) -> None:
        """Note that this owner no longer serves the partition."""
        self._ended.setdefault(partition, set()).add(owner)

    def list_known(self, partition: int, before: Iterable[PastOwner]) -> frozenset[PastOwner]:
        """Return the owners that no longer serve the partition: those `before`, which etcd knows, and those that were
        outlived.

        Each claim found the owner key of the claim before it deleted.
        """
        return frozenset({*before, *self._ended.get(partition, ())})
