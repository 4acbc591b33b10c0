"""Partitions that a node can't take over, because a newer release has written some of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.plural import format_count
from evenlane.ring.membership.records import ETCD_RECORDS, SETTLE_LOG

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.base.troubles import Troubles
    from evenlane.ring.membership.records import Unreadable

_TROUBLES = (SETTLE_LOG, ETCD_RECORDS)


class UnreadableRecords:
    """The unreadable records of one process, over all its sessions.

    A partition that waits for this node is a trouble. `known` has all partitions that the node couldn't take over, for
    its record in etcd: so the leader doesn't give them back. Each stays there until the node opens it, or finds that it
    could (`UnreadableRecheck`).
    """

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._waiting: dict[str, dict[int, str]] = {kind: {} for kind in _TROUBLES}  # partition -> reason
        self._known: dict[int, Unreadable] = {}

    @property
    def known(self) -> dict[int, Unreadable]:
        """What can't be read, by partition. Thread-safe."""
        return dict(self._known.copy())

    @property
    def left(self) -> frozenset[int]:
        """The partitions in `known` that the node doesn't wait for."""
        return frozenset(self._known).difference(*self._waiting.values())

    def forget(self, partition: int) -> None:
        """Note that the node could read the partition's records. No effect while it waits for the partition."""
        if partition in self.left:
            del self._known[partition]

    def note(self, partition: int, unreadable: Unreadable, reason: str) -> None:
        """Report that the node waits with the partition."""
        self._known[partition] = unreadable
        self._waiting[unreadable.kind][partition] = reason
        self._show(unreadable.kind)

    def end(self, partition: int, *, opened: bool = False) -> None:
        """Note that the node waits no more: the partition is `opened`, or was taken away from it."""
        if opened:
            self._known.pop(partition, None)
        for kind, reasons in self._waiting.items():
            if reasons.pop(partition, ""):
                self._show(kind)

    def keep_only(self, partitions: Collection[int]) -> None:
        """Note that the node waits for none but these partitions."""
        for partition in {each for reasons in self._waiting.values() for each in reasons}.difference(partitions):
            self.end(partition)

    def _show(self, kind: str) -> None:
        reasons = self._waiting[kind]
        if not reasons:
            self._troubles.end(kind)
            return
        first = min(reasons)
        others = len(reasons) - 1
        more = f" (and {format_count(others, 'partition')} more)" if others else ""
        self._troubles.begin(kind, f"can't take over partition {first}{more}: {reasons[first]}")
