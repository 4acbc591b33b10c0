"""Window: a bound on messages and bytes in flight, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.errors import NotAcknowledged

if TYPE_CHECKING:
    from evenlane.engine.producer.no_reply import ReplyTimeouts
    from evenlane.engine.producer.pipeline.pending_put import PendingPut


class _Waiting(NamedTuple):
    size: int
    turn: asyncio.Future[None]


class WindowItem(Protocol):
    """A message that takes room. `size` is in bytes, and constant."""

    @property
    def size(self) -> int: ...


class Window:
    """Room for `messages` messages and `size` bytes; a single message above `size` passes alone.

    Invariant: `_taken` and `_bytes` are the totals of the messages that have room. While messages wait, the first one
    doesn't fit.
    """

    def __init__(self, messages: int, size: int) -> None:
        self._messages, self._size = messages, size
        self._taken = self._bytes = 0
        self._waiting: deque[_Waiting] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._taken

    def try_acquire(self, message: WindowItem) -> bool:
        """Take room for a message if there is some and no other message waits for it."""
        size = message.size
        if self._waiting or not self._has_room(size):
            return False
        self._taken += 1
        self._bytes += size
        return True

    async def wait(self, message: WindowItem) -> None:
        """Wait for room for a message; a cancelled wait takes none."""
        size = message.size
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.done() and turn.exception() is None:
                self.release(message)
            else:
                turn.cancel()
                self._serve()  # a smaller one behind it may fit
            raise

    def release(self, message: WindowItem) -> None:
        """Release the room of a message."""
        self._taken -= 1
        self._bytes -= message.size
        if self._waiting:
            self._serve()

    def fail(self, error: Exception) -> None:
        """Fail all waiting messages."""
        while self._waiting:
            turn = self._waiting.popleft().turn
            if not turn.done():
                turn.set_exception(error)

    def _has_room(self, size: int) -> bool:
        return self._taken < self._messages and (self._bytes + size <= self._size or not self._taken)

    def _serve(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if not self._has_room(size):
                    return
                self._taken += 1
                self._bytes += size
                turn.set_result(None)
            self._waiting.popleft()


class PutWindow(Window):
    """Window of one producer. `timeout_s` is a put's timeout; `replies` knows why the store acknowledges too little."""

    def __init__(self, messages: int, size: int, timeout_s: float, replies: ReplyTimeouts) -> None:
        super().__init__(messages, size)
        self._timeout_s, self._replies = timeout_s, replies

    async def acquire(self, pending: PendingPut) -> None:
        """Wait for room within the put's deadline. Raises NotAcknowledged, ProducerClosed."""
        try:
            async with asyncio.timeout(pending.deadline - monotonic()):
                await self.wait(pending)
        except TimeoutError:
            why = self._replies.any_reason(monotonic())
            raise NotAcknowledged(
                f"the message for {pending.project} was not sent and is not stored: "
                f"for {self._timeout_s:g} s the store acknowledged too few of the messages before it"
                + (f" ({why})" if why else "")
            ) from None
