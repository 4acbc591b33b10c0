"""A client of the coordination port in memory, for tests and simulation: time and faults are calls."""

import asyncio
from collections import deque
from collections.abc import Sequence

from evenlane.ring.coordination.memory.server import Backup, MemoryKeyValueStore
from evenlane.ring.coordination.ports import (
    Compare,
    DeleteKey,
    Event,
    KeyValue,
    Listing,
    Op,
    PutKey,
    TxnResult,
    Unavailable,
)


class MemoryCoordination:
    """`evenlane.ring.coordination.ports.Coordination`; `peer` creates further clients of the same store."""

    def __init__(self, store: MemoryKeyValueStore | None = None) -> None:
        self.store = store if store is not None else MemoryKeyValueStore()
        self._watches: set[MemoryWatch] = set()
        self._unanswered: str | None = None

    def peer(self) -> "MemoryCoordination":
        """Another client of the same store, as of another node."""
        return MemoryCoordination(self.store)

    def advance(self, seconds: float) -> None:
        """Let the store's time pass: leases that aren't kept alive expire."""
        self.store.advance(seconds)

    def compact(self, revision: int) -> None:
        """Drop the history up to `revision`; a watch that is behind lists again."""
        self.store.compact(revision)

    def roll_back(self, revision: int) -> None:
        """Drop all later changes; watches list again, as with a restored server."""
        self.store.roll_back(revision)

    def restore(self, backup: Backup) -> None:
        """Restore a backup; watches list again."""
        self.store.restore(backup)

    def disconnect_watches(self) -> None:
        """Break the streams of this client's watches; they list again."""
        for watch in self._watches:
            watch.disconnect()

    def cut(self) -> None:
        """Stop the store from answering this client."""
        self._unanswered = "the connection is cut"
        self.disconnect_watches()

    def heal(self) -> None:
        """End `cut`."""
        self._unanswered = None
        for watch in self._watches:
            watch.wake()

    @property
    def is_answering(self) -> bool:
        return self._unanswered is None

    async def get(self, key: str) -> KeyValue | None:
        return self._reach().get(key)

    async def list(self, prefix: str) -> Listing:
        return self._reach().list(prefix)

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        return self._reach().txn((), (PutKey(key, value, lease),), ()).revision

    async def delete(self, key: str) -> bool:
        before = self._reach().revision
        return self.store.txn((), (DeleteKey(key),), ()).revision > before

    async def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        return self._reach().txn(compare, then, otherwise)

    async def grant(self, ttl_s: int) -> int:
        return self._reach().grant(ttl_s)

    async def keep_alive(self, lease: int) -> int:
        return self._reach().keep_alive(lease)

    async def lease_keys(self, lease: int) -> frozenset[str] | None:
        return self._reach().lease_keys(lease)

    async def revoke(self, lease: int) -> None:
        self._reach().revoke(lease)

    def watch(self, prefix: str, *, exact: bool = False) -> "MemoryWatch":
        if self._unanswered == _CLOSED:
            self._reach()
        watch = MemoryWatch(self, prefix, exact=exact)
        self._watches.add(watch)
        return watch

    async def status(self) -> str:
        self._reach()
        return "memory"

    async def close(self) -> None:
        self._unanswered = _CLOSED
        for watch in tuple(self._watches):
            await watch.aclose()

    def discard(self, watch: "MemoryWatch") -> None:
        self._watches.discard(watch)

    def _reach(self) -> MemoryKeyValueStore:
        if self._unanswered is not None:
            raise Unavailable(f"etcd in memory does not answer: {self._unanswered}")
        return self.store


_CLOSED = "this connection has been closed"


class MemoryWatch:
    """`evenlane.ring.coordination.ports.Watch`: reads the store's history from its position, `_seen`."""

    def __init__(self, client: MemoryCoordination, prefix: str, *, exact: bool = False) -> None:
        self._client = client
        self._prefix, self._exact = prefix, exact
        self._seen: int | None = None  # revision; None: it must list
        self._restored = client.store.restored
        self._read: deque[Event] = deque()
        self._closed = False
        self._wake = asyncio.Event()
        client.store.changed.append(self._wake.set)

    def __aiter__(self) -> "MemoryWatch":
        return self

    async def __anext__(self) -> Listing | Event:
        while not self._closed:
            update = self._next() if self._client.is_answering else None
            if update is not None:
                return update
            self._wake.clear()
            await self._wake.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.store.changed.remove(self._wake.set)
            self._client.discard(self)
            self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def disconnect(self) -> None:
        self._seen = None
        self._read.clear()
        self._wake.set()

    def _next(self) -> Listing | Event | None:
        store = self._client.store
        if self._read:
            return self._read.popleft()
        if self._seen is None or self._seen < store.compacted or self._restored != store.restored:
            listing = store.list(self._prefix)
            self._seen, self._restored = listing.revision, store.restored
            return Listing(listing.revision, tuple(item for item in listing.items if self._is_watched(item)))
        events = store.events_after(self._seen, self._prefix)
        self._read.extend(event for event in events if self._is_watched(event.item))
        self._seen = store.revision
        return self._read.popleft() if self._read else None

    def _is_watched(self, item: KeyValue) -> bool:
        return not self._exact or item.key == self._prefix
