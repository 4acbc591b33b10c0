"""The node as the ownership protocol sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.membership.records import HeldRecord, PastOwner


class HandoffSink(Protocol):
    """What a new owner does when handoff records of previous owners change."""

    def held_changed(self, number: int, record: HeldRecord) -> None: ...

    def held_let_go(self, number: int, record: HeldRecord) -> None: ...

    def held_gone(self, number: int, record: HeldRecord) -> None: ...

    def held_durable(self, number: int, record: HeldRecord) -> bool: ...


class PartitionHost(HandoffSink, Protocol):
    """What the protocol asks of the node."""

    def expect(self, *, more: bool) -> None:
        """Say whether the plan gives this node partitions that aren't open yet."""

    async def open(
        self,
        number: int,
        epoch: int,
        held: Iterable[HeldRecord] = (),
        known: Collection[PastOwner] | None = None,
        lease: int = 0,
    ) -> None:
        """Take a partition over. Raises Fenced; UnknownEpoch if the last owner isn't `known` to have ended."""

    def stop_partition(self, number: int) -> None:
        """Start nothing more of it, from this moment on."""

    def owed(self, number: int) -> Mapping[str, float]:
        """After that: the projects whose part in it others may still use, and for how many seconds."""

    async def hand_over(self, number: int, epoch: int) -> Mapping[Kind, HandoffState]:
        """Settle what has ended; returns what the next owner must know."""

    async def drop_partition(self, number: int, epoch: int) -> None:
        """Another node owns it."""
