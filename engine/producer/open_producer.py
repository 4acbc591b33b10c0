"""A producer that is open on an event loop and thread of its own, for calls from other threads."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.aio.caller_loop import CallerLoop
from evenlane.engine.errors import ProducerClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.sync_batch import SyncBatch

T = TypeVar("T")
_CLOSE_S = 5.0


class OpenProducer:
    """Opens the producer; `closed` is the text of errors after `close`. Raises Unreachable, ConfigError.

    Invariant: `_changed` guards `_calls`, the number of calls under way, and `_is_closing`; none begins after that is
    set.
    """

    def __init__(self, producer: Producer, closed: str) -> None:
        self.producer, self._closed = producer, closed
        producer.may_fork = True
        self._calls, self._is_closing = 0, False
        self._changed = threading.Condition()
        self._loop = CallerLoop("evenlane producer")
        try:
            self._loop.run(producer.open())
        except BaseException:
            self._loop.stop()
            raise

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a call. Raises ProducerClosed."""
        with self._changed:
            if self._is_closing:
                raise ProducerClosed(self._closed)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a part of a call, and return its result."""
        try:
            return self._loop.run(work)
        except CancelledError:  # by `close`
            raise ProducerClosed(self._closed) from None

    def give_up(self, batch: SyncBatch) -> None:
        """Abandon the puts of a batch whose call ends."""
        with contextlib.suppress(TimeoutError, CancelledError):
            self._loop.run(batch.give_up(), _CLOSE_S)

    def close(self, timeout_s: float | None) -> None:
        """Wait for the calls under way, at most this long, then close the producer and end the thread."""
        try:
            with self._changed:
                self._is_closing = True
                self._changed.wait_for(lambda: not self._calls, timeout_s)
        finally:  # after KeyboardInterrupt, too
            self._end()

    def _end(self) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                self._loop.run(self.producer.close(), _CLOSE_S)
        finally:
            self._loop.stop()
