"""Shares one read among all concurrent callers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Without `fresh_ns`, a caller gets a result whose read began after its call, never one that was already under way.

    With `fresh_ns`, a caller gets a result less than `fresh_ns` old. This includes a raised EvenlaneError: otherwise
    all waiting callers would retry the read, one after another. `clock` is in ns.
    """

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, fresh_ns: int | None = None, clock: Callable[[], int] = now_ns
    ) -> None:
        self._read, self._fresh_ns, self._clock = read, fresh_ns, clock
        self._lock = asyncio.Lock()
        self._calls = 0
        # Of the last completed read: its outcome; the number of the last call before it began, 0 if there was none; its
        # end.
        self._outcome: T | EvenlaneError
        self._answers = self._at = 0

    async def read(self) -> T:
        """Return a result. Raises the errors of the read."""
        self._calls += 1
        number = self._calls
        async with self._lock:
            if not self._is_current(number):
                answers = self._calls
                self._outcome = await self._attempt()
                self._answers, self._at = answers, self._clock()
            outcome = self._outcome
        if isinstance(outcome, EvenlaneError):
            raise outcome.with_traceback(None)  # otherwise the traceback would grow with each caller
        return outcome

    def _is_current(self, number: int) -> bool:
        """Whether the last outcome answers this call."""
        if self._fresh_ns is None:
            return self._answers >= number
        return self._answers > 0 and self._clock() - self._at < self._fresh_ns

    async def _attempt(self) -> T | EvenlaneError:
        if self._fresh_ns is None:
            return await self._read()
        try:
            return await self._read()
        except EvenlaneError as error:
            return error
