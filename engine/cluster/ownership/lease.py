"""Lease of a node: its key in etcd, kept alive, and trusted for a shorter time than etcd's TTL.

The node trusts the lease until the time when its last confirmed renewal was *sent*, plus TTL, minus a margin, on a
clock that includes the machine's sleep. After that the node starts no handlers. But until etcd reports the lease gone,
no other node can own anything under it, and a late answer restores trust.

A `Runner` keeps the lease in a thread of its own, so that a handler that blocks the node's event loop doesn't cost the
node its partitions. A stopped process loses its lease, as its threads are stopped, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.aio.loop_thread import SameLoop
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import NodeIdInUse
from evenlane.ring.coordination.ports import Absent, CoordinationError, LeaseGone, PutKey
from evenlane.ring.membership.records import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.aio.loop_thread import Runner
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import NodeRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_PAUSE_S = 0.5
_LOOK_S = 0.5  # interval of checks whether the record must be written at once
_SHORT_TTL_S = 5  # below it, renewals are more frequent, to leave time for retries


class NodeLease:
    """Registers a node under a lease and keeps it. `ttl` is in whole seconds.

    `record()` returns the node's record. `on_trust(until_ns)` is called after each renewal with the time until which
    handlers may start, `on_lost(reason)` once, when the lease is gone. `on_id(lease)` is called with each new lease
    before anything is put under it, and with 0 when a lease is revoked.

    `on_difference(reason)` is called in the lease's thread if etcd has lost the lease before its time, or its keys
    differ from the node's. `had` are earlier leases of this process: a restored etcd may have one of them again.

    `runner` carries out all calls of `coordination`, which belongs to it, and calls `record` and `on_id`; `on_trust`
    and `on_lost` are called in the node's event loop.

    Invariants: `id` is 0 while there is no lease; `trusted_until` (monotonic ns) only grows, and is derived from
    `renewed_at`, the time when the last confirmed renewal was sent. `_published` is the record last written.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        node_id: str,
        ttl: int,
        record: Callable[[], NodeRecord],
        on_trust: Callable[[int], None],
        on_lost: Callable[[str], None],
        on_id: Callable[[int], None] = lambda _lease: None,
        *,
        on_difference: Callable[[str], None] = lambda _reason: None,
        had: Collection[int] = (),
        runner: Runner | None = None,
    ) -> None:
        self._coordination, self.ttl, self._record = coordination, ttl, record
        self._runner: Runner = runner or SameLoop()
        self._on_trust, self._on_lost, self._on_id = on_trust, on_lost, on_id
        self._key, self._node = names.key(cluster, "nodes", node_id), node_id
        self._on_difference, self._had = on_difference, had
        self._served: Callable[[], frozenset[str]] = frozenset
        self._known: Callable[[], frozenset[str]] = frozenset
        self._owned_prefixes = (names.key(cluster, "owners", ""), names.key(cluster, "held", ""))
        self._look = asyncio.Event()
        self._margin = max(0.5, ttl / 5)
        self._every = ttl / 2 if ttl >= _SHORT_TTL_S else ttl / 3
        self.id = 0
        self.trusted_until = 0
        self.renewed_at = 0  # monotonic ns, when the last confirmed renewal was sent
        self._published: NodeRecord | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Register. If the id is taken, it may be this node's own from before a crash, so the lease is waited for.

        Raises NodeIdInUse if another node lives under the id; CoordinationError.
        """
        await self._runner.run(self._join())

    def compare(self, served: Callable[[], frozenset[str]], known: Callable[[], frozenset[str]]) -> None:
        """From now on, a renewal counts only if all `served` owner keys are under the lease, and no owner or held keys
        other than `known` ones. Both are called in the lease's thread.
        """
        self._served, self._known = served, known

    def renew_now(self) -> None:
        """Renew the lease without waiting for its next turn."""
        self._runner.call(self._look.set)

    async def _join(self) -> None:
        began, seen = now_ns(), 0
        while True:
            await self._revoke()  # an attempt whose answer was lost may have created our key
            sent = now_ns()
            self.id = await self._coordination.grant(self.ttl)
            self._on_id(self.id)
            self._published = self._record()
            put = PutKey(self._key, encode(self._published), self.id)
            try:
                if (await self._coordination.txn([Absent(self._key)], [put])).succeeded:
                    break
            except LeaseGone:
                continue  # the transaction took longer than the TTL
            await self._revoke()
            if await self._revoke_earlier_lease():
                continue
            seen = await self._other(seen, began)
            await asyncio.sleep(_PAUSE_S)
        self._trust(sent)
        self._tasks = [
            asyncio.create_task(self._keep(), name="lease"),
            asyncio.create_task(self._report(), name="report"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Report a failed task as a loss of the lease: it is a defect, and the node must not hang silently."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the registration has failed", part=task.get_name(), exc_info=error)
            self._runner.notify(
                self._on_lost, f"its task {task.get_name()!r} has failed: {type(error).__name__}: {error}"
            )

    async def _revoke_earlier_lease(self) -> bool:
        """Revoke the lease of the id's key if it is an earlier one of this process. Returns whether it was."""
        found = await self._coordination.get(self._key)
        if found is None or found.lease not in self._had:
            return False
        await self._coordination.revoke(found.lease)
        return True

    async def _other(self, seen: int, began: int) -> int:
        """Return the mod-revision of the other node's last update. Raises NodeIdInUse if it has changed since the first
        look, or if the id stays taken for three TTLs.
        """
        found = await self._coordination.get(self._key)
        if found is None:
            return seen
        if seen and (found.mod_revision != seen or now_ns() - began > 3 * self.ttl * _SECOND):
            raise NodeIdInUse(f"a node {self._node!r} is already running: give this one another --node")
        if not seen:
            _log.info("the node's id is still registered: waiting for its lease to end", node=self._node)
        return found.mod_revision

    async def end(self) -> None:
        """Revoke the lease, which deletes all keys under it. If etcd doesn't answer, the lease expires."""
        await self._runner.run(self._end())

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._revoke()
        except CoordinationError as error:
            _log.warning("not given back: the lease will end by itself", error=str(error))

    async def _revoke(self) -> None:
        if self.id:
            await self._coordination.revoke(self.id)
            self.id = 0
            self._on_id(0)

    @property
    def has_store(self) -> bool:
        """Whether the node's last published record says that it can reach the store."""
        return self._published is None or self._published.store

    async def publish(self) -> None:
        """Write the record now, unless there is no lease: the key would never expire. Raises CoordinationError."""
        await self._runner.run(self._publish())

    async def _publish(self) -> None:
        if not self.id:
            return
        self._published = self._record()
        await self._coordination.put(self._key, encode(self._published), self.id)

    async def _keep(self) -> None:
        pause, fenced, failing, differing = self._every, False, False, False
        while True:
            await self._pause(pause)
            sent = now_ns()
            try:
                difference = await self._renew()
            except LeaseGone:
                self._lose(self._explain_loss())
                return
            except CoordinationError as error:
                if not failing:
                    left_s = max(0.0, (self.trusted_until - now_ns()) / _SECOND)
                    _log.warning("the lease isn't renewed", node=self._node, left_s=round(left_s, 3), error=str(error))
                pause, failing = min(_PAUSE_S, self._every), True
                if not fenced and now_ns() >= self.trusted_until:
                    fenced = True
                    _log.warning("fenced: nothing starts until the lease is renewed", node=self._node, error=str(error))
                continue
            if difference and differing:
                self._lose(difference)
                return
            failing, differing = False, bool(difference)
            if differing:  # a single difference may stem from a partition acquired or released just now
                pause = min(_PAUSE_S, self._every)
                continue
            if fenced:
                fenced = False
                _log.info("the lease is renewed: handlers start again", node=self._node)
            self._trust(sent)
            pause = max(0.0, self._every - (now_ns() - sent) / _SECOND)

    async def _renew(self) -> str:
        """Renew the lease. Returns how its keys differ from the node's, empty if they don't. Raises LeaseGone."""
        served, known = self._served(), self._known()
        if await self._coordination.keep_alive(self.id) == 0:
            raise LeaseGone
        keys = await self._coordination.lease_keys(self.id)
        if keys is None:
            raise LeaseGone
        if missing := (served & self._served()) - keys:
            return f"etcd has none of {len(missing)} owner keys of this node, {min(missing)} among them"
        listed = {key for key in keys if key.startswith(self._owned_prefixes)}
        if strange := listed - known - self._known():
            return f"etcd has {len(strange)} keys of this node that it doesn't know, {min(strange)} among them"
        return ""

    def _explain_loss(self) -> str:
        if now_ns() >= self.trusted_until:
            return ""
        ago_s = (now_ns() - self.renewed_at) / _SECOND
        return f"etcd does not know its lease, which it renewed {ago_s:.1f} s ago"

    def _lose(self, difference: str) -> None:
        """Report the loss of the lease, and the `difference` if it ended before its time."""
        if difference:
            self._on_difference(difference)
        self._runner.notify(self._on_lost, difference or "its lease in etcd has ended")

    async def _pause(self, seconds: float) -> None:
        """Wait until it is time to renew, or `look` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        self._look.clear()

    async def _report(self) -> None:
        """Write the record as often as the lease is renewed, and at once when the node's fitness or troubles change."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._every
        while True:
            await asyncio.sleep(min(_LOOK_S, self._every))
            if clock() < due and _is_same(self._record(), self._published):
                continue
            try:
                await self._publish()
            except LeaseGone:
                continue  # `_keep` gets the same error
            except CoordinationError as error:
                _log.debug("not reported", error=str(error))
            due = clock() + self._every

    def _trust(self, sent: int) -> None:
        self.renewed_at = sent
        self.trusted_until = sent + int((self.ttl - self._margin) * _SECOND)
        self._runner.notify(self._on_trust, self.trusted_until)


def _is_same(now: NodeRecord, published: NodeRecord | None) -> bool:
    """Whether the fields that others act on at once are unchanged."""
    return published is None or (now.is_fit == published.is_fit and now.troubles == published.troubles)
