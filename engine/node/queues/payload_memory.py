"""The payload memory of all queues together: which reads must wait for room, and which queues unload payloads."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue import clear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler

_WAIT_S = 1.0  # how long a read waits for room before large queues unload


class PayloadMemory:
    """Accounts for payloads in memory.

    Invariant: `limits.used_bytes` is the size (bytes) of payloads in memory; `_reserved` that of payloads being read,
    estimated from mean sizes. Reads begin only while the sum is below the limit.
    """

    def __init__(self, limits: MemoryBudget, scheduler: Scheduler[Queue]) -> None:
        self.limits, self._scheduler = limits, scheduler
        self._reserved = 0
        self._freed = asyncio.Event()
        self.starved = 0
        """Reads that wait for room. While it isn't 0, whatever takes a payload must call `wake_reads`."""

    @property
    def free(self) -> int:
        """Memory for further reads (bytes); may be negative."""
        return self.limits.payload_bytes - self.limits.used_bytes - self._reserved

    def wake_reads(self) -> None:
        """Wake the reads that wait for room: a payload was taken or unloaded."""
        self._freed.set()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes for the duration of a read."""
        self._reserved += size
        try:
            yield
        finally:
            self._reserved -= size
            self._freed.set()

    async def has_room(self, most: int) -> bool:
        """Wait until payloads take less than `most` bytes; False if no memory was freed for a second."""
        while self._used >= most:
            self.starved += 1
            self._freed.clear()
            try:
                async with asyncio.timeout(_WAIT_S):
                    await self._freed.wait()
            except TimeoutError:  # (the reset of a lane frees memory without calling `wake_reads`)
                if self._used >= most:
                    return False
            finally:
                self.starved -= 1
        return True

    @property
    def _used(self) -> int:
        return self.limits.used_bytes + self._reserved

    def unload(self, queue: Queue, now: int) -> None:
        """Unload the queue's ready payloads; they are read again when their turn comes."""
        clear.unload(queue, self.limits)
        self._scheduler.empty(queue, now)
        self.wake_reads()

    def reclaim(self, queues: Iterable[Queue]) -> list[Queue]:
        """Unload queues, largest first, until half of the memory is free. Returns those queues."""
        goal, reclaimed = self.limits.payload_bytes // 2, []
        for queue in sorted(queues, key=lambda queue: queue.ready_bytes, reverse=True):
            if self.limits.used_bytes <= goal or len(queue.ready) < 2:
                break
            self.unload(queue, now_ns())
            reclaimed.append(queue)
        return reclaimed
