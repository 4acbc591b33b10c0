"""The producers of an application: handlers put further messages with them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.errors import ConfigError, ProducerClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Outcome, Put

T = TypeVar("T")

_NOT_RUNNING = "the producer of an application works while the application runs: elsewhere, use `async with Producer()`"


class AppProducer:
    """For async handlers. A `Producer` that connects with its first put, and is closed when the application ends.
    Raises ProducerClosed while the application doesn't run.

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

    def put(self, project: str, body: Any, **options: Any) -> Awaitable[Receipt]:
        """Put one message; arguments, result and errors are those of `Producer.put`."""
        return self._call(lambda producer: producer.put(project, body, **options))

    def put_many(self, puts: Iterable[Put] | AsyncIterable[Put]) -> Awaitable[list[Outcome]]:
        """As `Producer.put_many`."""
        return self._call(lambda producer: producer.put_many(puts))

    def put_each(
        self, puts: Iterable[Put] | AsyncIterable[Put], done: Callable[[int, Outcome], None]
    ) -> Awaitable[None]:
        """As `Producer.put_each`."""
        return self._call(lambda producer: producer.put_each(puts, done))

    def current(self) -> LazyProducer:
        """Raises ProducerClosed while the application doesn't run."""
        if not self._runs:
            raise ProducerClosed(_NOT_RUNNING)
        return self._runs[-1]

    def _call(self, call: Callable[[Producer], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
        """Not a coroutine itself: a plain handler would make one, and nobody would run it."""
        if not _in_loop():
            raise ConfigError("a plain handler can't await this put: use app.sync_producer, which waits for it")
        return self.current().call(call)


class AppSyncProducer:
    """For plain handlers: they wait until the message is stored, or refused. Otherwise as `AppProducer`."""

    def __init__(self, producer: AppProducer) -> None:
        self._producer = producer

    def put(self, project: str, body: Any, **options: Any) -> Receipt:
        """Put one message; arguments, result and errors are those of `Producer.put`."""
        return self._run(lambda producer: producer.put(project, body, **options))

    def put_many(self, puts: Iterable[Put]) -> list[Outcome]:
        """As `Producer.put_many`."""
        return self._run(lambda producer: producer.put_many(puts))

    def _run(self, call: Callable[[Producer], Coroutine[Any, Any, T]]) -> T:
        if _in_loop():
            raise ConfigError("an async handler would block the event loop with this put: await app.producer.put")
        producer = self._producer.current()
        return asyncio.run_coroutine_threadsafe(producer.call(call), producer.loop).result()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LazyProducer:
    """A producer that is made and opened with its first use, in the event loop in which this object is made.

    Invariant: `_producer` is open; it is None before the first use, and once `close` has begun.
    """

    def __init__(self, make: Callable[[], Producer]) -> None:
        self.loop = asyncio.get_running_loop()
        self._make, self._opening = make, asyncio.Lock()
        self._producer: Producer | None = None
        self._is_closed = False

    async def call(self, call: Callable[[Producer], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a call of the open producer, and raise its error. Raises what `get` raises."""
        return await call(await self.get())

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
