"""The offset of the store's clock from the node's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.stats.latency import LatencyStats


class StoreClock:
    """`offset` (ns) plus the node's monotonic time is the store's unix time. It is measured periodically: reading the
    store's clock for each message would cost a call.
    """

    def __init__(self, store: Store, times: LatencyStats) -> None:
        self._store, self._times = store, times
        self.offset = 0

    def measure(self) -> None:
        self.offset = self._times.offset = self._store.now() - now_ns()
