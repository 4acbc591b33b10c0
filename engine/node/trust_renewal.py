"""Renews the node's trust in its lease. After a lapse, it first proves that the node still owns its partitions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
    from evenlane.engine.node.settle.settler import Settler
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.work_signal import WorkSignal

_PROOF_S = 2.0  # how long to wait for a settle log that doesn't answer


class TrustRenewal:
    """The node's trust in its lease. A node whose trust lapsed may have lost its partitions even if etcd shows its
    lease and owner keys: etcd may have been rolled back since. Therefore its settle logs are checked before handlers
    start.

    Invariant: `trust.until` is `_granted_until`, unless a proof is under way; handlers then wait for its end.
    """

    def __init__(
        self,
        trust: LeaseTrust,
        owned: OwnedPartitions,
        settler: Settler,
        signal: WorkSignal,
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._trust, self._owned, self._settler, self._signal, self._on_end = trust, owned, settler, signal, on_end
        self._granted_until = 0
        self._lapses = self._proven_lapses = 0  # lapses so far, and those covered by a proof
        self.proof: asyncio.Task[None] | None = None

    def renew(self, until: int) -> None:
        """Trust the lease until then (monotonic ns); 0 ends the trust."""
        lapsed = 0 < self._granted_until <= now_ns()
        self._granted_until = until
        if until and lapsed and self._owned.partitions:
            self._lapses += 1  # a proof under way no longer suffices
        if until and self.proof is None and self._proven_lapses < self._lapses:
            self.proof = asyncio.create_task(self._prove(), name="regain trust")
            self.proof.add_done_callback(self._on_end)
        if not until or self.proof is None:
            self._apply(until)

    async def _prove(self) -> None:
        """Check the settle logs of all lanes. A log that doesn't answer in time doesn't hold up the others: another
        owner can have written to it only if etcd was rolled back as well.
        """
        while self._proven_lapses < self._lapses:
            lapses = self._lapses
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROOF_S):
                    await self._settler.prove(self._owned.lanes)
            self._proven_lapses = lapses
        self.proof = None
        self._apply(self._granted_until)

    def _apply(self, until: int) -> None:
        self._trust.until = until
        self._signal.notify()
