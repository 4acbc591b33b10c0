"""Previous owners that etcd has forgotten, and until when they may serve. Pure; times are monotonic ns.

After etcd has last confirmed its lease and owner key, an owner serves for one lease time at the most. Once a node has
claimed the partition, etcd can't confirm the forgotten owner any more. So the new owner waits for one lease time from
its claim on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.ring.membership.records import PastOwner

_SECOND = 1_000_000_000


class ForgottenOwners:
    """Of one term of a node; `ttl` is that of all leases, in seconds."""

    def __init__(self, ttl: int) -> None:
        self._ttl_ns = ttl * _SECOND
        self._since: dict[int, int] = {}  # partition -> when it was claimed
        self._withdrawn: set[int] = set()  # claimed under an epoch that was too low
        self._ended: dict[int, set[PastOwner]] = {}

    def begin(self, partition: int, now: int) -> None:
        """The partition has been claimed."""
        if partition not in self._withdrawn:
            self._since[partition] = now
        self._withdrawn.discard(partition)

    def withdraw(self, partition: int) -> None:
        """It is about to be claimed again: the time that has passed since counts."""
        self._withdrawn.add(partition)

    def taken(self, partition: int) -> None:
        """Another node has claimed the partition: only the time since this node's next claim counts."""
        self._withdrawn.discard(partition)

    def until(self, partition: int) -> int:
        """Until then somebody else may serve it."""
        return self._since[partition] + self._ttl_ns

    def note(self, partition: int, owner: PastOwner) -> None:
        """This owner serves no more."""
        self._ended.setdefault(partition, set()).add(owner)

    def known(self, partition: int, before: Iterable[PastOwner]) -> frozenset[PastOwner]:
        """Owners that serve no more: those `before` that etcd knows, and those that were outlived. Each claim found the
        owner key of the one before it gone.
        """
        return frozenset({*before, *self._ended.get(partition, ())})
