"""etcd as the nodes of a simulation reach it: each request takes time, and may be lost in either direction."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from evenlane.ring.coordination.memory.server import Backup, MemoryKeyValueStore
from evenlane.ring.coordination.ports import CoordinationError, DeleteKey, Listing, PutKey, Unavailable
from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.ring.coordination.ports import Compare, Event, KeyValue, Op, TxnResult
    from tests.simulation.loop import SimLoop
    from tests.simulation.network import Link

DEADLINE_S = 2.0  # as the real adapter's


class SimEtcd(MemoryKeyValueStore):
    """The cluster of etcd members, by the simulation's clock. `on_event` is called for each change of a key,
    `on_restore` after a return to a backup.
    """

    def __init__(self, loop: SimLoop) -> None:
        super().__init__()
        self._loop = loop
        self._advanced = loop.now
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.on_restore: Callable[[], None] = lambda: None
        self.links: dict[SimCoordination, None] = {}
        self._rolled_back: dict[int, float] = {}  # leases that were lost -> when they would have ended

    def pass_time(self) -> None:
        """Leases whose time has come end now."""
        passed, self._advanced = self._loop.now - self._advanced, self._loop.now
        self.advance(passed / SECOND)

    def lives(self, lease: int) -> bool:
        """Whether this lease hasn't ended by the clock. A lease that etcd has lost lives for as long as it would have:
        its holder can't know.
        """
        found = self._leases.get(lease)
        expires_s = max(found.expires_s if found is not None else 0, self._rolled_back.get(lease, 0))
        return expires_s * SECOND > self._now_s * SECOND + self._loop.now - self._advanced

    def rolled_back_until(self, lease: int) -> int:
        """The time at which a lease that etcd has lost would have ended."""
        return self._advanced + round((self._rolled_back.get(lease, 0) - self._now_s) * SECOND)

    def go_back(self, backup: Backup) -> None:
        """Stop etcd, and start another one with this backup. All clients lose their connections."""
        self.pass_time()
        for lease, kept in self._leases.items():
            self._rolled_back[lease] = max(kept.expires_s, self._rolled_back.get(lease, 0))
        self.restore(backup)
        self.on_restore()
        for link in self.links:
            link.disconnect_watches()

    def lengthen(self) -> None:
        """Another member becomes leader: every lease has its full TTL again."""
        for lease in self._leases:
            self.keep_alive(lease)

    def lease_ids(self) -> list[int]:
        return list(self._leases)

    def _carry_out(self, op: Op, revision: int) -> Event | None:
        event = super()._carry_out(op, revision)
        if event is not None:
            self.on_event(event)
            for link in self.links:
                link.happened(event)
        return event


class SimCoordination:
    """One node's client. When the node is killed, requests that are on their way still arrive."""

    def __init__(self, loop: SimLoop, etcd: SimEtcd, link: Link) -> None:
        self.loop, self.etcd, self.link = loop, etcd, link
        self._watches: dict[SimWatch, None] = {}
        self._closed = False
        etcd.links[self] = None

    # ---- faults

    def disconnect_watches(self) -> None:
        """End the streams of all watches. They list again when the link is up."""
        for watch in self._watches:
            watch.disconnect()

    def discard(self) -> None:
        """The node is dead: its watches receive nothing more."""
        self._closed = True
        self._watches.clear()
        self.etcd.links.pop(self, None)

    def happened(self, event: Event) -> None:
        if self.link.up:
            for watch in self._watches:
                watch.happened(event)

    # ---- the port

    async def get(self, key: str) -> KeyValue | None:
        return await self._ask(lambda: self.etcd.get(key))

    async def list(self, prefix: str) -> Listing:
        return await self._ask(lambda: self.etcd.list(prefix))

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        return (await self.txn((), (PutKey(key, value, lease),))).revision

    async def delete(self, key: str) -> bool:
        return await self._ask(lambda: self._deleted(key))

    def _deleted(self, key: str) -> bool:
        before = self.etcd.revision
        return self.etcd.txn((), (DeleteKey(key),), ()).revision > before

    async def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        return await self._ask(lambda: self.etcd.txn(compare, then, otherwise))

    async def grant(self, ttl_s: int) -> int:
        return await self._ask(lambda: self.etcd.grant(ttl_s))

    async def keep_alive(self, lease: int) -> int:
        if self.link.starved:
            await asyncio.sleep(DEADLINE_S)
            raise Unavailable("etcd did not answer")
        return await self._ask(lambda: self.etcd.keep_alive(lease))

    async def lease_keys(self, lease: int) -> frozenset[str] | None:
        return await self._ask(lambda: self.etcd.lease_keys(lease))

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda: self.etcd.revoke(lease))

    def watch(self, prefix: str, *, exact: bool = False) -> SimWatch:
        if self._closed:
            raise Unavailable("this connection has been closed")
        watch = SimWatch(self, prefix, exact=exact)
        self._watches[watch] = None
        return watch

    async def status(self) -> str:
        await self._ask(lambda: None)
        return "simulated"

    async def close(self) -> None:
        for watch in list(self._watches):
            await watch.aclose()
        self.discard()

    def closed(self, watch: SimWatch) -> None:
        self._watches.pop(watch, None)

    async def _ask(self, carry_out: Callable[[], Any]) -> Any:
        """Send a request. The world carries it out, even if the node dies meanwhile."""
        if self._closed:
            raise Unavailable("this connection has been closed")
        link, loop = self.link, self.loop
        answer: asyncio.Future[Any] = loop.create_future()
        fails = link.fails()
        before = fails and link.either()

        def arrive() -> None:
            if not link.up or before:
                return
            self.etcd.pass_time()
            try:
                result, error = carry_out(), None
            except CoordinationError as refusal:
                result, error = None, refusal
            if not fails:
                loop.call_later(link.delay(), return_, result, error, context=loop.world.context)

        def return_(result: Any, error: CoordinationError | None) -> None:
            if answer.done() or not link.up:
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        loop.call_later(link.delay(), arrive, context=loop.world.context)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await answer
        except TimeoutError:
            raise Unavailable("etcd did not answer in time") from None


class SimWatch:
    """A watch. Events arrive late, in order, and as a listing after each loss of the stream."""

    def __init__(self, client: SimCoordination, prefix: str, *, exact: bool = False) -> None:
        self._client, self._prefix, self._exact = client, prefix, exact
        self._listed = self._closed = False
        self._undelivered: deque[tuple[int, Event]] = deque()  # with the time at which it gets here
        self._wakes: asyncio.Future[None] | None = None

    def __aiter__(self) -> SimWatch:
        return self

    async def __anext__(self) -> Listing | Event:
        client = self._client
        while not self._closed:
            if not client.link.up or (self._listed and not self._undelivered):
                await self._something()
            elif not self._listed:
                await asyncio.sleep(client.link.delay())
                if client.link.up and not self._closed:
                    return self._list()
            elif (late := self._undelivered[0][0] - client.loop.now) > 0:
                await asyncio.sleep(late / SECOND)
            else:
                return self._undelivered.popleft()[1]
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True
        self._client.closed(self)
        self._wake()

    def disconnect(self) -> None:
        self._listed = False
        self._undelivered.clear()
        self._wake()

    def happened(self, event: Event) -> None:
        if self._listed and self._covers(event.item.key):
            late = self._client.loop.now + int(self._client.link.delay() * SECOND)
            self._undelivered.append((max(late, self._undelivered[-1][0]) if self._undelivered else late, event))
            self._wake()

    def _list(self) -> Listing:
        self._listed = True
        listing = self._client.etcd.list(self._prefix)
        return Listing(listing.revision, tuple(item for item in listing.items if self._covers(item.key)))

    def _covers(self, key: str) -> bool:
        return key == self._prefix if self._exact else key.startswith(self._prefix)

    async def _something(self) -> None:
        self._wakes = self._client.loop.create_future()
        await self._wakes

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)
