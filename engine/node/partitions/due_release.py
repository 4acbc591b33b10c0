"""What is due later: into its queue when its time has come, and the feeds of hours that come near."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.ports import Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.partitions.partition import Partition

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_LONGEST = 30 * _SECOND
_DUE_AT_ONCE = 1_000  # of one partition, in one step
_HOURS_EVERY_S = 60.0


class DueReleaser:
    """`came_due(queue)` is called for each queue that got something; `noted` when a delayed message came in;
    `on_hour()` once a minute.
    """

    def __init__(
        self,
        store: Store,
        partitions: Mapping[int, Partition],
        came_due: Callable[[Queue], None],
        on_hour: Callable[[], None],
    ) -> None:
        self._store, self._partitions, self._came_due, self._on_hour = store, partitions, came_due, on_hour
        self._due = asyncio.Event()

    def start(self) -> list[asyncio.Task[None]]:
        """The tasks that must run as long as the node does."""
        return [
            asyncio.create_task(self._release_due(), name="due"),
            asyncio.create_task(self._turn_hours(), name="hours"),
        ]

    def noted(self) -> None:
        """It may be due before all others."""
        self._due.set()

    async def _release_due(self) -> None:
        while True:
            self._due.clear()
            wait = (self._release() - self._store.now()) / _SECOND
            try:
                # (not wait_for, which before Python 3.12 may swallow a cancellation)
                async with asyncio.timeout(max(0.002, wait)):
                    await self._due.wait()
                await asyncio.sleep(0.005)  # many come at once: look once for all of them
            except TimeoutError:
                pass

    def _release(self) -> int:
        """Release what is due; when there is more, unix ns."""
        now = self._store.now()
        nearest = now + _LONGEST
        for partition in self._partitions.values():
            delayed = partition.later.delayed
            due = delayed.next_due()
            if due is not None and due <= now:
                for queue in partition.later.release_due(now, _DUE_AT_ONCE):
                    self._came_due(queue)
                due = delayed.next_due()
            if due is not None:
                nearest = min(nearest, due)
        return nearest

    async def _turn_hours(self) -> None:
        while True:
            await asyncio.sleep(_HOURS_EVERY_S)
            self._on_hour()
            for partition in [each for each in self._partitions.values() if each.opened]:
                try:
                    await partition.feed_later()
                except (Lost, Refused) as error:
                    _log.debug("hours not turned", partition=partition.number, error=str(error))
