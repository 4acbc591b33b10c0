"""Limits how many of many similar jobs run at the same time, and how closely they follow each other.

Each job then ends soon, and other work gets its share of the processor. A slow job delays the others only for a moment.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Pacing:
    """`few` turns at the same time, in the order in which they are asked for. Beside a turn that lasts longer than
    `patience_s` the next one begins.
    """

    def __init__(self, few: int, patience_s: float) -> None:
        self._free, self._patience_s = asyncio.Semaphore(few), patience_s
        self._next_at = 0.0  # the loop's time; before then none begins

    @asynccontextmanager
    async def turn(self, apart_s: float = 0.0) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block. The next one begins `apart_s` after this one at the earliest."""
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

        timer = loop.call_at(begins + self._patience_s, free)
        try:
            await asyncio.sleep(begins - loop.time())
            yield
        finally:
            timer.cancel()
            free()
