"""One reading for all who ask at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Whoever asks gets what was read from then on, never what was being read already."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._gate = asyncio.Lock()
        self._asked = self._done = 0
        self._last: T

    async def read(self) -> T:
        """Raises what the reading raises."""
        self._asked += 1
        mine = self._asked
        async with self._gate:
            if self._done < mine:
                upto = self._asked
                self._last = await self._read()
                self._done = upto
            return self._last
