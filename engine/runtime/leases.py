"""Ledger of the leases in etcd that a process may hold, for its supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.runtime.supervision import Supervision
    from evenlane.ring.coordination.ports import Coordination


class LeaseLedger:
    """Leases of one process. `supervision` is notified of each change, before anything is put under a new lease.

    Invariant: the lease of an earlier session is listed until etcd has confirmed its end, as it keeps the node's id and
    partitions until then.
    """

    def __init__(self, coordination: Coordination, supervision: Supervision, cluster: str) -> None:
        self._coordination, self._supervision, self._cluster = coordination, supervision, cluster
        self._previous: list[int] = []

    def note_current(self, lease: int) -> None:
        """Note the lease of the present session; 0: none."""
        self._supervision.report_leases(self._cluster, [*self._previous, *([lease] if lease else [])])

    def add_previous(self, lease: int) -> None:
        """Note the lease of a session that is over, if etcd hasn't confirmed its end; 0: it has."""
        if lease:
            self._previous.append(lease)

    async def revoke_previous(self) -> None:
        """Revoke the leases of earlier sessions. Raises CoordinationError."""
        while self._previous:
            await self._coordination.revoke(self._previous[-1])
            self._previous.pop()
            self.note_current(0)
