"""How much may be on its way at once: a bound on messages and bytes, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple


class _Waiting(NamedTuple):
    size: int
    turn: asyncio.Future[None]


class Window:
    """Room for `messages` and `size` bytes; one message above `size` passes alone."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages, self._size = messages, size
        self._taken = self._bytes = 0
        self._waiting: deque[_Waiting] = deque()

    @property
    def empty(self) -> bool:
        return not self._taken

    def take(self, size: int) -> bool:
        """Take room for one message if there is some and nobody waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self._taken += 1
        self._bytes += size
        return True

    async def wait(self, size: int) -> None:
        """Take room as soon as there is some; cancelling gives it back."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.done() and turn.exception() is None:
                self.give_back(size)
            else:
                turn.cancel()
                self._serve()  # whoever stands behind may fit
            raise

    def give_back(self, size: int) -> None:
        self._taken -= 1
        self._bytes -= size
        if self._waiting:
            self._serve()

    def fail(self, error: Exception) -> None:
        """Turn away all who wait."""
        while self._waiting:
            turn = self._waiting.popleft().turn
            if not turn.done():
                turn.set_exception(error)

    def _fits(self, size: int) -> bool:
        return self._taken < self._messages and (self._bytes + size <= self._size or not self._taken)

    def _serve(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(size):
                    return
                self._taken += 1
                self._bytes += size
                turn.set_result(None)
            self._waiting.popleft()
