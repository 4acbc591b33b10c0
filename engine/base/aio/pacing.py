"""Paces many similar jobs: limits how many run at the same time, and how closely they follow each other.

Each job then ends soon, and other work gets its share of the processor. A slow job delays the others only briefly.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Pacing:
    """Grants up to `few` concurrent turns, in the order of requests. A turn longer than `max_turn_s` no longer counts,
    and the next one may begin.
    """

    def __init__(self, few: int, max_turn_s: float) -> None:
        self._free, self._max_turn_s = asyncio.Semaphore(few), max_turn_s
        self._next_at = 0.0  # the loop's time before which no turn begins

    @asynccontextmanager
    async def turn(self, apart_s: float = 0.0) -> AsyncIterator[None]:
        """Wait for a turn, which ends with the block. The next one begins `apart_s` after this one at the earliest."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        begins = max(loop.time(), self._next_at)
        self._next_at = begins + apart_s
        freed = False

        def free() -> None:
            nonlocal freed
            if not freed:
                freed = True
                self._free.release()

        timer = loop.call_at(begins + self._max_turn_s, free)
        try:
            await asyncio.sleep(begins - loop.time())
            yield
        finally:
            timer.cancel()
            free()
