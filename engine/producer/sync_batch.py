"""Hands the puts of a batch from the calling thread to the event loop, and their outcomes back."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Outcome, Put

_MOST = 256  # puts handed over together
_LONGEST_S = 0.01  # that a put waits for further ones


class SyncBatch:
    """One batch. `add`, `end` and `give_up` run on the event loop; `report` on the calling thread, as `done` must.

    Invariant: at most one part of the puts waits in `_parts`, so that memory is bounded.
    """

    def __init__(self, producer: Producer, done: Callable[[int, Outcome], None]) -> None:
        self._producer, self._done = producer, done
        self._outcomes: deque[tuple[int, Outcome]] = deque()
        self._parts: asyncio.Queue[list[Put] | None] = asyncio.Queue(1)
        self._putting: asyncio.Task[None] | None = None

    async def add(self, part: list[Put] | None) -> None:
        """Hand over some puts, once there is room. Raises what ends the batch early."""
        if self._putting is None:
            self._putting = asyncio.create_task(
                self._producer.put_each(self._iterate(), lambda *outcome: self._outcomes.append(outcome))
            )
        adding = asyncio.ensure_future(self._parts.put(part))
        try:
            await asyncio.wait({adding, self._putting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            adding.cancel()
            raise
        if self._putting.done():
            adding.cancel()
            self._putting.result()

    async def end(self) -> None:
        """Wait until each put has its outcome."""
        await self.add(None)
        if self._putting is not None:
            await self._putting

    async def give_up(self) -> None:
        """Abandon the puts in flight."""
        if self._putting is not None:
            self._putting.cancel()
            await asyncio.wait({self._putting})

    def report(self) -> None:
        while self._outcomes:
            self._done(*self._outcomes.popleft())

    async def _iterate(self) -> AsyncIterator[Put]:
        while (part := await self._parts.get()) is not None:
            for put in part:
                yield put


def parts(puts: Iterable[Put]) -> Iterator[list[Put]]:
    """Divide the puts, so that one from a slow source doesn't wait for many others."""
    part: list[Put] = []
    began = monotonic()
    for put in puts:
        part.append(put)
        if len(part) == _MOST or monotonic() - began >= _LONGEST_S:
            yield part
            part, began = [], monotonic()
    if part:
        yield part
