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

    An application may run on several nodes of one process. Invariant: `_runs` has a producer for each of them, the last
    to begin at the end; that one is used.
    """

    def __init__(self) -> None:
        self._runs: list[LazyProducer] = []

    def begin(self, make: Callable[[], Producer]) -> LazyProducer:
        """Allow puts, on a producer that `make` returns, until its `end`."""
        run = LazyProducer(make)
        self._runs.append(run)
        return run

    async def end(self, run: LazyProducer) -> None:
        if run in self._runs:
            self._runs.remove(run)
            await run.close()

    async def put(self, project: str, body: Any, **options: Any) -> Receipt:
        """Put one message; arguments, result and errors are those of `Producer.put`."""
        return await (await self._get()).put(project, body, **options)

    async def put_many(self, puts: Iterable[Put] | AsyncIterable[Put]) -> list[Outcome]:
        """As `Producer.put_many`."""
        return await (await self._get()).put_many(puts)

    async def put_each(self, puts: Iterable[Put] | AsyncIterable[Put], done: Callable[[int, Outcome], None]) -> None:
        """As `Producer.put_each`."""
        await (await self._get()).put_each(puts, done)

    async def _get(self) -> Producer:
        if not self._runs:
            raise ProducerClosed(_NOT_RUNNING)
        return await self._runs[-1].get()


class LazyProducer:
    """A producer that is made and opened with its first use.

    Invariant: `_producer` is open; it is None before the first use, and once `close` has begun.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make, self._opening = make, asyncio.Lock()
        self._producer: Producer | None = None
        self._is_closed = False

    async def get(self) -> Producer:
        """Raises ProducerClosed after `close`, Unreachable and ConfigError."""
        if self._producer is not None:
            return self._producer
        async with self._opening:
            if self._is_closed:
                raise ProducerClosed(_NOT_RUNNING)
            if self._producer is None:
                producer = self._make()
                await producer.open()
                self._producer = producer
            return self._producer

    async def close(self) -> None:
        """Waits for an `open` that has begun."""
        self._is_closed = True
        async with self._opening:
            producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
