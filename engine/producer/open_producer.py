"""A producer that is open on an event loop and thread of its own, for calls from other threads."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar

from evenlane.engine.base.aio.caller_loop import CallerLoop
from evenlane.engine.errors import ConfigError, ProducerClosed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.sync_batch import SyncBatch

T = TypeVar("T")
_CLOSE_S = 5.0
_OWN_THREAD = (
    "the producer's own thread can't put, as it would wait for itself: put from another thread (a log handler that puts"
    " runs in the thread that logs)"
)


class OpenProducer:
    """Opens the producer; `closed` is the text of errors after `close`. Raises Unreachable, ConfigError.

    Invariant: `_changed` guards `_calls`, the number of calls under way by thread, and `_is_closing`; none begins after
    that is set.
    """

    def __init__(self, producer: Producer, closed: str) -> None:
        self.producer, self._closed = producer, closed
        producer.may_fork = True
        self._calls: Counter[int] = Counter()
        self._is_closing = False
        self._changed = threading.Condition()
        self._loop = CallerLoop("evenlane producer")
        try:
            self._loop.run(producer.open())
        except BaseException:
            self._loop.stop()
            raise

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count a call. Raises ProducerClosed, and ConfigError in the producer's own thread."""
        caller = threading.get_ident()
        if self._loop.is_current:
            raise ConfigError(_OWN_THREAD)
        with self._changed:
            if self._is_closing:
                raise ProducerClosed(self._closed)
            self._calls[caller] += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls[caller] -= 1
                if not self._calls[caller]:
                    del self._calls[caller]  # threads come and go
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
        """Wait for the calls under way, at most this long, then close the producer and end the thread. Calls of this
        thread itself can't go on meanwhile, as this is called by `done` or a signal's handler: they fail.
        """
        caller = threading.get_ident()
        try:
            with self._changed:
                self._is_closing = True
                self._changed.wait_for(lambda: self._calls.keys() <= {caller}, timeout_s)
        finally:  # after KeyboardInterrupt, too
            self._end()

    def _end(self) -> None:
        try:
            with contextlib.suppress(TimeoutError, CancelledError):
                self._loop.run(self.producer.close(), _CLOSE_S)
        finally:
            self._loop.stop()
