"""Protocols of the node as the ownership protocol uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.membership.records import HeldRecord, PastOwner


class HandoffSink(Protocol):
    """Callbacks of a new owner for changes of previous owners' handoff records."""

    def on_held_change(self, number: int, record: HeldRecord) -> None: ...

    def on_held_release(self, number: int, record: HeldRecord) -> None: ...

    def on_held_gone(self, number: int, record: HeldRecord) -> None: ...

    def is_held_durable(self, number: int, record: HeldRecord) -> bool: ...


class PartitionHost(HandoffSink, Protocol):
    """Calls that the ownership protocol makes on the node."""

    def expect(self, *, more: bool) -> None:
        """Set whether the plan assigns partitions to this node that aren't open yet."""

    async def open(
        self,
        number: int,
        epoch: int,
        held: Iterable[HeldRecord] = (),
        known: Collection[PastOwner] | None = None,
        lease: int = 0,
    ) -> None:
        """Take over a partition. Raises Fenced; UnknownEpoch if the last owner isn't `known` to have ended."""

    async def read_logs(self, number: int) -> None:
        """Read the settle logs of a partition, also another node's. Raises Lost, Refused, UnknownVersion."""

    def stop_partition(self, number: int) -> None:
        """Start no more handlers of the partition, effective at once."""

    def list_owed(self, number: int) -> Mapping[str, float]:
        """Return projects whose quota share other nodes may still use, and for how many s; after `stop_partition`."""

    async def hand_off(self, number: int, epoch: int) -> Mapping[Kind, HandoffState]:
        """Settle the messages that have ended; return the state that the next owner needs."""

    async def drop_partition(self, number: int, epoch: int) -> None:
        """Drop the partition, which another node owns."""
