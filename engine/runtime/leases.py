"""The leases in etcd that a process may hold, as its supervisor knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.runtime.supervision import Supervision
    from evenlane.ring.coordination.ports import Coordination


class LeaseLedger:
    """Lives as long as the process. `supervision` learns of each change, before anything is put under a new lease.

    Invariant: a lease of a former session is listed until etcd has confirmed its end. Until then it keeps the node's id
    and partitions.
    """

    def __init__(self, coordination: Coordination, supervision: Supervision) -> None:
        self._coordination, self._supervision = coordination, supervision
        self._former: list[int] = []

    def note_current(self, lease: int) -> None:
        """The present session has this lease; 0: none."""
        self._supervision.holds([*self._former, *([lease] if lease else [])])

    def add_former(self, lease: int) -> None:
        """A session is over, and etcd has not confirmed the end of its lease; 0: it has."""
        if lease:
            self._former.append(lease)

    async def revoke_former(self) -> None:
        """End the leases of former sessions. Raises CoordinationError."""
        while self._former:
            await self._coordination.revoke(self._former[-1])
            self._former.pop()
            self.note_current(0)
