"""Moves delayed messages into their queues when they become due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.activity import Activity
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes
    from evenlane.engine.node.queues.ready_queues import ReadyQueues

_SECOND = 1_000_000_000
_LONGEST = 30 * _SECOND
_DUE_AT_ONCE = 1_000  # messages per delay stream and step


class DueReleaser:
    """Waits for the earliest due time of all delay streams, or for the arrival of an earlier one."""

    def __init__(self, store: Store, lanes: OwnedLanes, ready: ReadyQueues, activity: Activity) -> None:
        self._store, self._lanes, self._ready, self._activity = store, lanes, ready, activity
        self._due = asyncio.Event()

    def on_delayed(self, queue: Queue | None) -> None:
        """A delayed message of `queue` arrived, which may be due before all others; None: of any queue."""
        if queue is not None:
            self._activity.note(queue)
        self._due.set()

    async def run(self) -> None:
        while True:
            self._due.clear()
            wait = (self._release() - self._store.now()) / _SECOND
            try:
                # (not wait_for, which before Python 3.12 may swallow a cancellation)
                async with asyncio.timeout(max(0.002, wait)):
                    await self._due.wait()
                await asyncio.sleep(0.005)  # they arrive in bursts: one look serves the whole burst
            except TimeoutError:
                pass

    def _release(self) -> int:
        """Release due messages. Returns the next due time, unix ns."""
        now = self._store.now()
        nearest = now + _LONGEST
        for _, *delay_lanes in self._lanes.lanes.values():
            for later in delay_lanes:
                due = later.delayed.next_due()
                if due is not None and due <= now:
                    for queue in later.release_due(now, _DUE_AT_ONCE):
                        self._ready.on_due(queue)
                    due = later.delayed.next_due()
                if due is not None:
                    nearest = min(nearest, due)
        return nearest
