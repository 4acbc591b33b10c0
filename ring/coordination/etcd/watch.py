"""A watch on etcd that survives lost connections, restarted servers and compactions.

etcd3's own watcher isn't used: after a disconnect its thread dies or spins, and adding a watch inside a callback
deadlocks. Here each session has a client, a connection and a stream of its own. It lists, then follows the stream from
the next revision; any error ends it, and the next session lists again.
"""

import asyncio
import contextlib
import contextvars
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

from evenlane.ring.coordination.etcd.channel import Address, connect, disconnect, explain_error
from evenlane.ring.coordination.etcd.fork_gate import ForkGate
from evenlane.ring.coordination.etcd.messages import Paging, event, watch_request
from evenlane.ring.coordination.ports import CoordinationError, Event, Listing, Unavailable

import etcd3  # isort: skip - after evenlane.ring.coordination.etcd.channel, which makes it importable
import grpc  # isort: skip

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_SILENT_S = 21 * 60.0  # etcd sends a progress notification at least every 10 minutes
_MOST_WAITING = 10_000  # events; further ones stay in etcd until the consumer has caught up
_log = logging.getLogger(__name__)


class EtcdWatch:
    """`evenlane.ring.coordination.ports.Watch` on etcd; for one consumer, on the loop that created it.

    A session that receives nothing for `silent_s` seconds is replaced: its thread may have died when a handler used up
    the memory.

    Invariant: only the thread with the present `_number` delivers; one that was replaced ends. `_swap` guards
    `_client`, so that a client created during `aclose` is closed, too.
    """

    def __init__(
        self,
        address: Address,
        prefix: str,
        on_ended: Callable[["EtcdWatch"], object] = lambda _: None,
        silent_s: float = _SILENT_S,
        gate: ForkGate | None = None,
        *,
        exact: bool = False,
    ) -> None:
        self._address = address
        self._prefix, self._exact = prefix, exact
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Listing | Event] = deque()
        self._wake = asyncio.Event()
        self._closed = threading.Event()
        self._client: etcd3.Etcd3Client | None = None
        self._swap = threading.Lock()
        self._number = 0  # of the present thread
        self._last_reply_at = time.monotonic()
        self._silent_s = silent_s
        self._gate = gate
        if gate is not None:
            gate.on_fork.add(self._disconnect)
        self._context = contextvars.copy_context()  # the caller's, which identifies it in log lines
        self._start()
        self._look_timer = self._loop.call_later(silent_s / 2, self._look)

    def _start(self) -> None:
        self._number += 1
        # A daemon, so that a process may end without closing its watches.
        run = self._context.copy().run
        name = f"etcd watch {self._prefix}"
        threading.Thread(target=run, args=(self._run, self._number), name=name, daemon=True).start()

    def _look(self) -> None:
        self._look_timer = self._loop.call_later(self._silent_s / 2, self._look)
        if time.monotonic() - self._last_reply_at >= self._silent_s:
            self._note_reply()  # the next session gets the full time
            _log.info("a watch of etcd hears nothing, and is made anew", extra={"prefix": self._prefix})
            self._start()

    def _note_reply(self) -> None:
        self._last_reply_at = time.monotonic()

    def _is_over(self, number: int) -> bool:
        """Whether a thread must end."""
        return self._closed.is_set() or number != self._number

    def __aiter__(self) -> "EtcdWatch":
        return self

    async def __anext__(self) -> Listing | Event:
        while not self._closed.is_set():
            if self._arrived:
                return self._arrived.popleft()
            self._wake.clear()
            if not self._arrived:
                await self._wake.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._look_timer.cancel()
            self._on_ended(self)
            if self._gate is not None:
                self._gate.on_fork.discard(self._disconnect)
            self._wake.set()
            await asyncio.to_thread(self._use, None)

    def _use(self, client: etcd3.Etcd3Client | None) -> None:
        """Close the session's client, which ends its stream at once, and keep the new one."""
        with self._swap:
            before, self._client = self._client, client
            if client is not None and self._closed.is_set():
                disconnect(client)
        if before is not None:
            disconnect(before)

    def _disconnect(self) -> None:
        self._use(None)

    def _run(self, number: int) -> None:
        pause = _FIRST_PAUSE_S
        while not self._is_over(number):
            try:
                for updates in self._session():
                    if self._is_over(number):
                        return
                    self._deliver(updates)
                    pause = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - after any error the watch must go on
                self._report(error, first=pause == _FIRST_PAUSE_S)
            finally:
                if number == self._number:
                    self._use(None)
            # Jitter: not all watchers of a restarted etcd should list at the same instant.
            self._closed.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    def _session(self) -> Iterator[Sequence[Listing | Event]]:
        has_answered = False
        try:
            with self._gate or contextlib.nullcontext():
                client = connect(self._address, self._address.target())
                self._use(client)
            listing = _list(client, Paging(self._prefix, exact=self._exact), self._address.deadline_s)
            has_answered = True
            yield [listing]
            request = watch_request(self._prefix, listing.revision + 1, exact=self._exact)
            with contextlib.closing(_stream(client, request, self._note_reply)) as batches:
                yield from batches
        except grpc.RpcError as error:
            raise explain_error(self._address, error, has_answered=has_answered) from error
        except ValueError as error:  # raised by gRPC if the channel was closed meanwhile
            raise Unavailable(str(error)) from error

    def _deliver(self, updates: Sequence[Listing | Event]) -> None:
        while len(self._arrived) > _MOST_WAITING and not self._closed.is_set():
            self._closed.wait(0.02)
        self._arrived.extend(updates)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._wake.set)

    def _report(self, error: Exception, *, first: bool) -> None:
        if not self._closed.is_set():
            level = logging.INFO if first else logging.DEBUG
            context = {"prefix": self._prefix, "error": str(error) or repr(error)}
            _log.log(level, "a watch of etcd is lost, and is made anew", extra=context)


def _list(client: etcd3.Etcd3Client, paging: Paging, deadline_s: float) -> Listing:
    while not paging.complete:
        paging.add_page(client.kvstub.Range(paging.request(), deadline_s, metadata=client.metadata))
    return paging.listing()


def _stream(client: etcd3.Etcd3Client, request: Any, on_reply: Callable[[], None]) -> Generator[list[Event]]:
    """The events that are requested; `on_reply` is called for each reply."""
    requests: SimpleQueue[Any] = SimpleQueue()
    requests.put(request)
    # A member that has lost its leader would stay silent; with this it ends the stream.
    metadata = (*(client.metadata or ()), ("hasleader", "true"))
    stub = etcd3.etcdrpc.WatchStub(client.channel)
    stream = stub.Watch(iter(requests.get, None), metadata=metadata)
    try:
        for reply in stream:
            on_reply()
            if reply.canceled:
                raise CoordinationError(_explain(reply))
            if reply.events:
                yield [event(each) for each in reply.events]
        raise Unavailable("etcd has ended the stream")
    finally:
        requests.put(None)  # ends gRPC's thread that reads the requests
        stream.cancel()


def _explain(reply: Any) -> str:
    if reply.compact_revision:
        return f"etcd has compacted everything before revision {reply.compact_revision}"
    return f"etcd has cancelled it: {reply.cancel_reason or 'no reason given'}"
