"""A node's registration: its key under a lease, kept alive, trusted for less time than etcd does.

The lease is trusted until its last renewal was *sent*, plus TTL, minus a margin, on a clock that runs on while the
machine sleeps. After that nothing starts; but as long as etcd hasn't said that the lease is gone, nobody else can have
taken what stands under it, and an answer that comes late makes all of it good again.

The lease is kept by a `Runner`, in a thread of its own: a handler that blocks the node's event loop leaves the node
what it owns. Nobody keeps the lease of a process that is stopped, as its threads are, too.
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
from evenlane.ring.coordination.ports import Absent, CoordinationError, LeaseGone, Put
from evenlane.ring.membership.records import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.aio.loop_thread import Runner
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import NodeRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_PAUSE_S = 0.5
_LOOK_S = 0.5  # between two looks at whether the record must be told at once
_SHORT_TTL_S = 5  # below it a renewal that fails needs more tries


class NodeLease:
    """`record()` is what the node says of itself. `on_trust(until_ns)` is told after each renewal until when handlers
    may start, `on_lost(reason)` once, when the lease is gone. `on_id(lease)` is told of each new lease before anything
    is put under it, and of 0 when one was given back. `ttl` is in whole seconds.

    `on_difference(reason)` is called in the lease's thread if etcd has forgotten the lease before its time, or keys
    under it. `had` are the leases that this process has had before: a restored etcd may have one of them again.

    `runner` carries out all calls of `coordination`, which is its own, and calls `record` and `on_id` there;
    `on_trust` and `on_lost` are called in the node's event loop.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
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
        self._key, self._node = names.key(env, "nodes", node_id), node_id
        self._on_difference, self._had = on_difference, had
        self._served: Callable[[], frozenset[str]] = frozenset
        self._known: Callable[[], frozenset[str]] = frozenset
        self._told_of = (names.key(env, "owners", ""), names.key(env, "held", ""))
        self._look = asyncio.Event()
        self._margin = max(0.5, ttl / 5)
        self._every = ttl / 2 if ttl >= _SHORT_TTL_S else ttl / 3
        self.id = 0
        self.trusted_until = 0
        self.renewed_at = 0  # monotonic ns, when the last renewal that etcd confirmed was sent
        self._told: NodeRecord | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Register. An id that is taken may be one's own from before a crash: its lease is waited for. IdTaken if
        another node lives under it. Raises CoordinationError.
        """
        await self._runner.run(self._join())

    def compare(self, served: Callable[[], frozenset[str]], known: Callable[[], frozenset[str]]) -> None:
        """From now on a renewal counts only if all owner keys that are `served` stand under the lease, and no owner or
        held key that isn't `known`. Both are called in the lease's thread.
        """
        self._served, self._known = served, known

    def look(self) -> None:
        """Renew the lease now."""
        self._runner.call(self._look.set)

    async def _join(self) -> None:
        began, seen = now_ns(), 0
        while True:
            await self._revoke()  # of an attempt whose answer was lost, which may have our key
            sent = now_ns()
            self.id = await self._coordination.grant(self.ttl)
            self._on_id(self.id)
            self._told = self._record()
            put = Put(self._key, encode(self._told), self.id)
            try:
                if (await self._coordination.txn([Absent(self._key)], [put])).succeeded:
                    break
            except LeaseGone:
                continue  # this took longer than the lease lasts
            await self._revoke()
            if await self._was_ours():
                continue
            seen = await self._other(seen, began)
            await asyncio.sleep(_PAUSE_S)
        self._trust(sent)
        self._tasks = [
            asyncio.create_task(self._keep(), name="lease"),
            asyncio.create_task(self._report(), name="report"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails is a defect: the node must not stand still without a word."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the registration has failed", part=task.get_name(), exc_info=error)
            self._runner.notify(
                self._on_lost, f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}"
            )

    async def _was_ours(self) -> bool:
        """Whether the id stood under a lease that this process has had before: no more, then."""
        found = await self._coordination.get(self._key)
        if found is None or found.lease not in self._had:
            return False
        await self._coordination.revoke(found.lease)
        return True

    async def _other(self, seen: int, began: int) -> int:
        """The revision of the other's last sign of life; IdTaken if there has been one since we wait."""
        found = await self._coordination.get(self._key)
        if found is None:
            return seen
        if seen and (found.mod_revision != seen or now_ns() - began > 3 * self.ttl * _SECOND):
            raise NodeIdInUse(f"a node {self._node!r} runs already: give this one another --node")
        if not seen:
            _log.info("the node's id is still registered: waiting for its lease to end", node=self._node)
        return found.mod_revision

    async def end(self) -> None:
        """Give it back: all that stands under it goes. If etcd doesn't answer, it ends by itself."""
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
        """Whether the node, by what it last said of itself, can reach NATS."""
        return self._told is None or self._told.store

    async def tell(self) -> None:
        """Write the record now; not without a lease, as it would stay for ever. Raises CoordinationError."""
        await self._runner.run(self._tell())

    async def _tell(self) -> None:
        if not self.id:
            return
        self._told = self._record()
        await self._coordination.put(self._key, encode(self._told), self.id)

    async def _keep(self) -> None:
        pause, fenced, failing, differing = self._every, False, False, False
        while True:
            await self._paused(pause)
            sent = now_ns()
            try:
                difference = await self._renewed()
            except LeaseGone:
                self._lose(self._gone())
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
            if differing:  # once it may be what was acquired or released just now
                pause = min(_PAUSE_S, self._every)
                continue
            if fenced:
                fenced = False
                _log.info("the lease is renewed: handlers start again", node=self._node)
            self._trust(sent)
            pause = max(0.0, self._every - (now_ns() - sent) / _SECOND)

    async def _renewed(self) -> str:
        """Renew the lease; what etcd says of its keys that isn't so, empty if nothing. Raises LeaseGone."""
        served, known = self._served(), self._known()
        if await self._coordination.keep_alive(self.id) == 0:
            raise LeaseGone
        keys = await self._coordination.lease_keys(self.id)
        if keys is None:
            raise LeaseGone
        if missing := (served & self._served()) - keys:
            return f"etcd has none of {len(missing)} owner keys of this node, {min(missing)} among them"
        told_of = {key for key in keys if key.startswith(self._told_of)}
        if strange := told_of - known - self._known():
            return f"etcd has {len(strange)} keys of this node that it doesn't know, {min(strange)} among them"
        return ""

    def _gone(self) -> str:
        if now_ns() >= self.trusted_until:
            return ""
        ago_s = (now_ns() - self.renewed_at) / _SECOND
        return f"etcd knows nothing of its lease, which it renewed {ago_s:.1f} s ago"

    def _lose(self, difference: str) -> None:
        """The lease is over; because of this difference, if it isn't by its time."""
        if difference:
            self._on_difference(difference)
        self._runner.notify(self._on_lost, difference or "its lease in etcd has ended")

    async def _paused(self, seconds: float) -> None:
        """Until it is time to renew, or somebody wants to know."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        self._look.clear()

    async def _report(self) -> None:
        """The record, as often as the lease is renewed; at once when it says that the node is fit, or not, for more, or
        what keeps it from its work.
        """
        clock = asyncio.get_running_loop().time
        due = clock() + self._every
        while True:
            await asyncio.sleep(min(_LOOK_S, self._every))
            if clock() < due and _same(self._record(), self._told):
                continue
            try:
                await self._tell()
            except LeaseGone:
                continue  # `_keep` is told, too
            except CoordinationError as error:
                _log.debug("not reported", error=str(error))
            due = clock() + self._every

    def _trust(self, sent: int) -> None:
        self.renewed_at = sent
        self.trusted_until = sent + int((self.ttl - self._margin) * _SECOND)
        self._runner.notify(self._on_trust, self.trusted_until)


def _same(now: NodeRecord, told: NodeRecord | None) -> bool:
    """Whether what others act on at once hasn't changed."""
    return told is None or (now.fit == told.fit and now.troubles == told.troubles)
