"""The memory for payloads of all queues together: who must wait for room, and who gives payloads up."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler

_WAIT_S = 1.0  # for room, until queues that hold much give it up


class PayloadMemory:
    """`limits.held` are the bytes of the payloads that queues have ready; `_reserved` those that are being read, as
    far as mean sizes tell. Reads begin only while both together stay below the limit.
    """

    def __init__(self, limits: MemoryBudget, scheduler: Scheduler[Queue]) -> None:
        self.limits, self._scheduler = limits, scheduler
        self._reserved = 0
        self._freed = asyncio.Event()
        self.starved = 0
        """Reads that wait for room. Whoever takes a payload while there are some calls `freed`."""

    @property
    def free(self) -> int:
        """Bytes for further reads; may be negative."""
        return self.limits.payload_bytes - self.limits.held - self._reserved

    def freed(self) -> None:
        """A payload was taken or given up while a read waited for room."""
        self._freed.set()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Hold `size` bytes back while they are being read."""
        self._reserved += size
        try:
            yield
        finally:
            self._reserved -= size
            self._freed.set()

    async def has_room(self, most: int) -> bool:
        """Wait until payloads take less than `most` bytes; False if nothing was freed for a second."""
        while self._used >= most:
            self.starved += 1
            self._freed.clear()
            try:
                async with asyncio.timeout(_WAIT_S):
                    await self._freed.wait()
            except TimeoutError:  # (a lane that is reset frees memory without a word, too)
                if self._used >= most:
                    return False
            finally:
                self.starved -= 1
        return True

    @property
    def _used(self) -> int:
        return self.limits.held + self._reserved

    def unload(self, queue: Queue, now: int) -> None:
        """Drop the payloads that the queue has ready: they are read again when their turn comes."""
        queue.lay_down(self.limits)
        self._scheduler.empty(queue, now)
        self.freed()

    def reclaim(self, queues: Iterable[Queue]) -> list[Queue]:
        """Unload queues, those with the most payloads first, until half of the memory is free. Which they were."""
        goal, reclaimed = self.limits.payload_bytes // 2, []
        for queue in sorted(queues, key=lambda queue: queue.hand_bytes, reverse=True):
            if self.limits.held <= goal or len(queue.hand) < 2:
                break
            self.unload(queue, now_ns())
            reclaimed.append(queue)
        return reclaimed
