"""What is made once for all who want it at about the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class FreshSingleFlight(Generic[T]):
    """What `make` gives, or the EvenlaneError that it raises, is given to all who ask within `fresh_ns` of that: else
    each of those who wait would have it tried anew, one after another.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], fresh_ns: int) -> None:
        self._make, self._fresh_ns = make, fresh_ns
        self._making = asyncio.Lock()
        self._made: T | EvenlaneError | None = None
        self._at = 0

    async def now(self) -> T:
        """Raises what `make` does."""
        async with self._making:
            made = self._made
            if made is None or now_ns() - self._at >= self._fresh_ns:
                self._made = None
                made = self._made = await self._tried()
                self._at = now_ns()
        if isinstance(made, EvenlaneError):
            raise made.with_traceback(None)  # it would grow with each who asks
        return made

    async def _tried(self) -> T | EvenlaneError:
        try:
            return await self._make()
        except EvenlaneError as error:
            return error
