"""SyncProducer: `Producer` for programs without an event loop, such as Django, Flask and Celery (P8)."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from evenlane.engine.errors import ProducerClosed
from evenlane.engine.producer.open_producer import OpenProducer
from evenlane.engine.producer.pipeline.batch_put import OutcomeList
from evenlane.engine.producer.producer import WINDOW_BYTES, WINDOW_MESSAGES, Producer
from evenlane.engine.producer.put import check_done, check_iterable
from evenlane.engine.producer.sync_batch import SyncBatch, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import ClusterLayout, Receipt, Store
    from evenlane.engine.producer.pipeline.router import Topics
    from evenlane.engine.producer.put import Outcome, Put

_CLOSED = "this producer is closed: put before `close`, or inside `with SyncProducer(...)`"
_EXIT_S = 2.0  # for all of them


class SyncProducer:
    """Publishes messages from a program without an event loop: `SyncProducer().put("acme", b"...")`.

    Arguments and errors are those of `Producer`. Any number of threads may share one. It connects with the first put,
    and closes when the process ends, or when nothing refers to it any more. After `os.fork` the child connects with its
    own first put, and the parent's puts go on. Where an event loop runs, use `Producer`: this one blocks the loop until
    the message is stored.
    """

    def __init__(
        self,
        nats: str | Sequence[str] | None = None,
        etcd: str | Sequence[str] | None = None,
        env: str | None = None,
        *,
        settings: Settings | None = None,
        store: Store | str | None = None,
        topics: Topics | None = None,
        facts: ClusterLayout | None = None,
        duplicate_protection: bool = True,
        timeout: float | None = None,
        admission: float | None = None,
        window_messages: int = WINDOW_MESSAGES,
        window_bytes: int = WINDOW_BYTES,
        tracer_provider: object | None = None,
    ) -> None:
        self._make = partial(
            Producer, nats, etcd, env, settings=settings, store=store, topics=topics, facts=facts,
            duplicate_protection=duplicate_protection, timeout=timeout, admission=admission,
            window_messages=window_messages, window_bytes=window_bytes, tracer_provider=tracer_provider,
        )  # fmt: skip
        self._make()  # checks the arguments now
        self._is_closed = False
        self._opened: OpenProducer | None = None
        self._finalizer: weakref.finalize[..., SyncProducer] | None = None
        self._lock = threading.RLock()  # held to open; reentrant, as a signal's handler may close meanwhile
        _all.add(self)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect now, not with the first put. Raises Unreachable, ConfigError."""
        with self._lock:
            self._is_closed = False
        self._get()

    def close(self, timeout: float | None = None) -> None:
        """Close. Waits for puts of other threads for at most `timeout` seconds, by default until each has its outcome;
        puts that still wait then fail, as do those of this thread that a signal's handler or `done` interrupts to
        close. May be called twice.
        """
        self._is_closed = True
        if not self._lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            return  # another thread still connects; it ends that itself
        try:
            opened, self._opened = self._opened, None
            self._detach()
        finally:
            self._lock.release()
        if opened is not None:
            opened.close(timeout)

    def put(
        self,
        project: str,
        body: Any,
        *,
        priority: str | None = None,
        key: str | None = None,
        group: int | None = None,
        delay: float | None = None,
        due: int | datetime | None = None,
        ttl: float | None = None,
        id: str | None = None,  # noqa: A002 - the name in the public surface
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Put one message; return once the store has persisted it. Arguments and errors are those of `Producer.put`.

        The first put may raise Unreachable and ConfigError, too. After an interrupt, such as KeyboardInterrupt, the
        message may or may not be stored.
        """
        opened = self._get()
        with opened.call():
            return opened.run(
                opened.producer.put(
                    project, body, priority=priority, key=key, group=group, delay=delay, due=due, ttl=ttl, id=id,
                    headers=headers,
                )
            )  # fmt: skip

    def home_partition(self, project: str) -> int:
        """As `Producer.home_partition`. The first call may raise Unreachable and ConfigError, too."""
        return self._get().producer.home_partition(project)

    def put_many(self, puts: Iterable[Put]) -> list[Outcome]:
        """Put all messages concurrently. Returns in order, for each put, its Receipt or the error that `put` would
        raise.
        """
        outcomes = OutcomeList()
        self.put_each(puts, outcomes.add)
        return outcomes.in_order()

    def put_each(self, puts: Iterable[Put], done: Callable[[int, Outcome], None]) -> None:
        """Put all messages in bounded memory. `puts` is read, and `done` is called with each put's number, from 0, and
        outcome, in this thread; outcomes come in any order.

        Returns when all puts have their outcome. If `puts` or `done` raises, puts in flight are abandoned: they may or
        may not be stored.
        """
        check_iterable(puts, is_sync=True)
        check_done(done)
        each = parts(puts)
        opened = self._get()
        with opened.call():
            batch = SyncBatch(opened.producer, done)
            try:
                for part in each:
                    opened.run(batch.add(part))
                    batch.report()
                opened.run(batch.end())
                batch.report()
            except BaseException:
                opened.give_up(batch)
                raise

    def _get(self) -> OpenProducer:
        opened = self._opened
        if opened is not None and not self._is_closed:
            return opened
        with self._lock:
            if self._is_closed:
                raise ProducerClosed(_CLOSED)
            if self._opened is None:
                self._keep(OpenProducer(self._make(), _CLOSED))
            if self._opened is None:
                raise ProducerClosed(_CLOSED)
            return self._opened

    def _keep(self, made: OpenProducer) -> None:
        """Keep what was opened, unless `close` or, in a signal's handler, another put came first."""
        if self._is_closed or self._opened is not None:
            made.close(0)
        else:
            self._opened = made
            self._finalizer = weakref.finalize(self, _close_later, made)
            self._finalizer.atexit = False  # `_close_all` does it

    def _detach(self) -> None:
        """From now on the producer isn't closed when this object goes."""
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer.detach()

    def _forget(self) -> None:
        """In a child process: leave the parent's connections alone."""
        if self._opened is not None:
            _of_parent.append(self._opened)
        self._detach()
        self._lock, self._opened = threading.RLock(), None


_all: weakref.WeakSet[SyncProducer] = weakref.WeakSet()
_of_parent: list[OpenProducer] = []  # kept, as the end of its sockets and loop here could disturb the parent's


def _close_later(opened: OpenProducer) -> None:
    """Close in another thread: the garbage collector may run in the producer's own, which can't wait for itself."""
    with contextlib.suppress(RuntimeError):  # no thread can be started
        threading.Thread(target=opened.close, args=(0,), name="evenlane producer ends", daemon=True).start()


def _after_in_child() -> None:
    for each in tuple(_all):
        each._forget()  # noqa: SLF001 - of this module


def _close_all() -> None:
    until = monotonic() + _EXIT_S
    for each in tuple(_all):
        with contextlib.suppress(Exception):  # the process ends, come what may
            each.close(max(0.0, until - monotonic()))


os.register_at_fork(after_in_child=_after_in_child)
atexit.register(_close_all)
