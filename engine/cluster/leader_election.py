"""Leader election: the leader is the process whose lease holds the key `leader` (P4).

Two processes may briefly both believe that they lead (fault 7). Each write of a leader therefore carries the comparison
`CreatedAt(leader key, epoch)`, by which etcd rejects writes of a previous leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.quota.topics.strict_json import write_object
from evenlane.ring.coordination.ports import (
    Absent,
    CoordinationError,
    CreatedAt,
    DeleteKey,
    Event,
    HeldUnder,
    Listing,
    ModifiedAt,
    PutKey,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue

_PAUSE_S = 0.5  # before a failed step is retried
_FAREWELL_S = 1.0  # time limit for revoking the lease at close
_RENEWALS = 3  # per lease TTL
_log = structlog.get_logger(__name__)


class LeaderElection:
    """Campaigns until closed, and runs `term(epoch)` while it leads.

    A term that returns (its writes were rejected) gives up leadership. A term that fails because etcd doesn't answer is
    restarted as long as the lease is held. A term is cancelled when leadership is lost.

    `node_lease()` returns the lease of the node that hosts this election, 0 while it has none. The leader key then
    expires together with the node's owner keys, so a successor need not wait for two leases. Without `node_lease`, the
    election has a lease of its own.

    Invariants: `_lease` is the lease under which the leader key was or is being created, 0 if none; `leading` is set
    exactly while a term is served.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        holder: str,
        term: Callable[[int], Awaitable[None]],
        *,
        lease_ttl_s: int = 10,
        node_lease: Callable[[], int] | None = None,
    ) -> None:
        self.leading = asyncio.Event()
        self.key = names.key(cluster, "leader")
        self._coordination = coordination
        self._holder = names.check_node(holder)
        self._term = term
        self._ttl_s = lease_ttl_s
        self._node_lease = node_lease
        self._lease = 0
        self._clearing: asyncio.Task[None] | None = None
        self._granted = 0.0  # the loop's time when the lease was requested
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start campaigning. Further calls have no effect."""
        if self._running is not None:
            return
        self._running = asyncio.create_task(self._run(), name="leadership")

    async def close(self) -> None:
        """End the term and revoke the lease, so that another process can lead at once. May be called twice."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def fence(self, epoch: int) -> CreatedAt:
        """Return the comparison that holds until another leader is elected."""
        return CreatedAt(self.key, epoch)

    async def _run(self) -> None:
        while True:
            try:
                await self._lead(await self._wait_for_election())
            except CoordinationError as error:
                _log.info("stands for election again", node=self._holder, reason=str(error))
            except Exception:  # noqa: BLE001 - whatever it was, it must not end the elections
                _log.exception("the leader's work failed")
            finally:
                await self._give_up_lease()
            await asyncio.sleep(_PAUSE_S)

    async def _wait_for_election(self) -> int:
        """Wait until the key belongs to this process; return its epoch."""
        watch = self._coordination.watch(self.key)
        try:
            async for update in watch:
                if epoch := self._ours_already(update):
                    return epoch
                self._note_detached(update)
                if self._read_created_at(update) == 0 and (epoch := await self._try()):
                    return epoch
            raise CoordinationError("the connection has been closed")
        finally:
            self._note_detached(None)
            await watch.aclose()

    def _note_detached(self, update: Listing | Event | None) -> None:
        """Schedule the deletion of a leader key that is under no lease, as it would never expire. A change of the key,
        such as its leader's repair, cancels it.
        """
        item = self._item(update) if update is not None else None
        if isinstance(update, Event) and item is None:
            return  # the event is about another key
        if self._clearing is not None:
            self._clearing.cancel()
            self._clearing = None
        if item is not None and item.create_revision and not item.lease:
            self._clearing = asyncio.create_task(self._clear(item.mod_revision), name="clear leader")

    async def _clear(self, revision: int) -> None:
        while True:
            await asyncio.sleep(3 * self._ttl_s)
            _log.warning("a value in etcd is cleared away", reason=f"{self.key} has no lease")
            with contextlib.suppress(CoordinationError):
                await self._coordination.txn([ModifiedAt(self.key, revision)], [DeleteKey(self.key)])

    async def _try(self) -> int:
        """Try to create the leader key. Return the epoch, or 0 if another process was quicker."""
        self._granted = asyncio.get_running_loop().time()
        self._lease = await self._get_lease()
        result = await self._coordination.txn([Absent(self.key)], [PutKey(self.key, self._value(), self._lease)])
        if result.succeeded:
            return result.revision
        await self._give_up_lease()
        return 0

    def _value(self) -> bytes:
        return write_object({"id": self._holder, "since": datetime.now(UTC).isoformat(timespec="milliseconds")})

    async def _get_lease(self) -> int:
        if self._node_lease is None:
            return await self._coordination.grant(self._ttl_s)
        while not (lease := self._node_lease()):  # noqa: ASYNC110 - a node that rejoins sends no notification
            await asyncio.sleep(_PAUSE_S)
        return lease

    async def _lead(self, epoch: int) -> None:
        _log.info("leads", node=self._holder, epoch=epoch)
        self.leading.set()
        parts = [
            asyncio.ensure_future(part) for part in (self._renew(), self._wait_for_loss(epoch), self._serve(epoch))
        ]
        try:
            ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in ended:
                part.result()
        finally:
            _log.info("leads no more", node=self._holder, epoch=epoch)
            self.leading.clear()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _renew(self) -> None:
        """Return when the lease is gone or can no longer be trusted. With `node_lease`, never return: the node
        keeps that lease, and `_wait_for_loss` notices its end.
        """
        if self._node_lease is not None:
            await asyncio.get_running_loop().create_future()
        clock = asyncio.get_running_loop().time
        pause, trusted_until = self._ttl_s / _RENEWALS, self._granted + self._ttl_s
        while clock() < trusted_until:
            await asyncio.sleep(pause)
            sent = clock()
            try:
                if await self._coordination.keep_alive(self._lease) == 0:
                    return
                pause, trusted_until = max(0.0, sent + self._ttl_s / _RENEWALS - clock()), sent + self._ttl_s
            except CoordinationError as error:
                pause = min(_PAUSE_S, pause)
                _log.info("the leader's lease was not renewed", reason=str(error))

    async def _wait_for_loss(self, epoch: int) -> None:
        """Return when the key no longer belongs to this process. A key that was put under no lease is attached to ours
        again.

        The lease is compared, too: after an etcd rollback another leader's key may have our epoch.
        """
        watch = self._coordination.watch(self.key)
        try:
            async for update in watch:
                item = self._item(update)
                if self._read_created_at(update) not in (epoch, None):
                    return
                if item is not None and item.lease not in (0, self._lease):
                    return
                if item is not None and item.create_revision == epoch and not item.lease:
                    await self._attach(epoch)
        finally:
            await watch.aclose()

    async def _attach(self, epoch: int) -> None:
        while True:
            with contextlib.suppress(CoordinationError):
                unheld: list[Compare] = [self.fence(epoch), HeldUnder(self.key, 0)]
                await self._coordination.txn(unheld, [PutKey(self.key, self._value(), self._lease)])
                return
            await asyncio.sleep(_PAUSE_S)

    async def _serve(self, epoch: int) -> None:
        while True:
            try:
                return await self._term(epoch)
            except CoordinationError as error:
                _log.info("the leader's term begins again", reason=str(error))
            await asyncio.sleep(_PAUSE_S)

    def _item(self, update: Listing | Event) -> KeyValue | None:
        """Return the leader's key, None if the update doesn't mention it. A deleted key has no create-revision."""
        items = update.items if isinstance(update, Listing) else (update.item,)
        return next((item for item in items if item.key == self.key), None)

    def _read_created_at(self, update: Listing | Event) -> int | None:
        """Return the leader key's create-revision, 0 if there is no key, None if the update is about another key."""
        item = self._item(update)
        if item is None:
            return 0 if isinstance(update, Listing) else None
        return item.create_revision

    def _ours_already(self, update: Listing | Event) -> int:
        """Return the epoch if the key is already under the node's lease: left by a term that failed, or by a claim
        whose answer was lost. Otherwise 0.
        """
        item = self._item(update)
        lease = self._node_lease() if self._node_lease is not None else 0
        if item is None or not lease or item.lease != lease:
            return 0
        self._lease = lease
        return item.create_revision

    async def _give_up_lease(self) -> None:
        lease, self._lease = self._lease, 0
        if lease and self._node_lease is None:
            with contextlib.suppress(CoordinationError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._coordination.revoke(lease)
