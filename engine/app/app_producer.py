"""The producer of an application: handlers put further messages with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import ProducerClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Outcome, Put

_NOT_RUNNING = "the producer of an application works while the application runs: elsewhere, use `async with Producer()`"


class AppProducer:
    """A `Producer` that connects with its first put, and is closed when the application ends. Raises ProducerClosed
    while the application doesn't run.

    Invariant: `_producer` is open; it is None until the first put.
    """

    def __init__(self) -> None:
        self._make: Callable[[], Producer] | None = None
        self._producer: Producer | None = None
        self._opening: asyncio.Lock | None = None

    def begin(self, make: Callable[[], Producer]) -> None:
        """Allow puts, on a producer that `make` returns."""
        self._make, self._opening = make, asyncio.Lock()

    async def end(self) -> None:
        producer, self._producer, self._make = self._producer, None, None
        if producer is not None:
            await producer.close()

    async def put(self, project: str, body: Any, **options: Any) -> Receipt:
        """Put one message; arguments, result and errors are those of `Producer.put`."""
        producer = self._producer or await self._open()
        return await producer.put(project, body, **options)

    async def put_many(self, puts: Iterable[Put] | AsyncIterable[Put]) -> list[Outcome]:
        """As `Producer.put_many`."""
        return await (self._producer or await self._open()).put_many(puts)

    async def put_each(self, puts: Iterable[Put] | AsyncIterable[Put], done: Callable[[int, Outcome], None]) -> None:
        """As `Producer.put_each`."""
        await (self._producer or await self._open()).put_each(puts, done)

    async def _open(self) -> Producer:
        if self._make is None or self._opening is None:
            raise ProducerClosed(_NOT_RUNNING)
        async with self._opening:
            if self._producer is None:
                producer = self._make()
                await producer.open()
                self._producer = producer
            return self._producer
