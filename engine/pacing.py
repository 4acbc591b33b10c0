"""A few at the same time, so that each of many is done soon; a slow one holds up the others for a moment only."""

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

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block."""
        await self._free.acquire()
        freed = False

        def free() -> None:
            nonlocal freed
            if not freed:
                freed = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._patience_s, free)
        try:
            yield
        finally:
            timer.cancel()
            free()
