"""A node's registration: its key under a lease, kept alive, trusted for less time than etcd does.

The lease is trusted until its last renewal was *sent*, plus TTL, minus a margin, on a clock that runs on while the
machine sleeps. After that nothing starts; but as long as etcd hasn't said that the lease is gone, nobody else can have
taken what stands under it, and an answer that comes late makes all of it good again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from engine import names
from engine.clock import now_ns
from engine.errors import IdTaken
from ring.coordination import Absent, CoordinationError, LeaseGone, Put
from ring.records import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ring.coordination import Coordination
    from ring.records import NodeRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_PAUSE_S = 0.5
_LOOK_S = 0.5  # between two looks at whether the record must be told at once
_SHORT_TTL_S = 5  # below it a renewal that fails needs more tries


class Lease:
    """`record()` is what the node says of itself, `fit()` whether it may own partitions. `on_trust(until_ns)` is told
    after each renewal until when handlers may start, `on_lost(reason)` once, when the lease is gone. `on_id(lease)`
    is told of each new lease before anything is put under it, and of 0 when one was given back. `ttl` is in whole
    seconds.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        node_id: str,
        ttl: int,
        record: Callable[[], NodeRecord],
        fit: Callable[[], bool],
        on_trust: Callable[[int], None],
        on_lost: Callable[[str], None],
        on_id: Callable[[int], None] = lambda _lease: None,
    ) -> None:
        self._coordination, self.ttl, self._record, self._fit = coordination, ttl, record, fit
        self._on_trust, self._on_lost, self._on_id = on_trust, on_lost, on_id
        self._key, self._node = names.key(env, "nodes", node_id), node_id
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
            self._on_lost(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def _other(self, seen: int, began: int) -> int:
        """The revision of the other's last sign of life; IdTaken if there has been one since we wait."""
        found = await self._coordination.get(self._key)
        if found is None:
            return seen
        if seen and (found.mod_revision != seen or now_ns() - began > 3 * self.ttl * _SECOND):
            raise IdTaken(f"a node {self._node!r} runs already: give this one another --node")
        if not seen:
            _log.info("the node's id is still registered: waiting for its lease to end", node=self._node)
        return found.mod_revision

    async def end(self) -> None:
        """Give it back: all that stands under it goes. If etcd doesn't answer, it ends by itself."""
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
        """Write the record now. Raises CoordinationError."""
        self._told = self._record()
        await self._coordination.put(self._key, encode(self._told), self.id)

    async def _keep(self) -> None:
        pause, fenced, failing = self._every, False, False
        while True:
            await asyncio.sleep(pause)
            sent = now_ns()
            try:
                left = await self._coordination.keep_alive(self.id)
            except CoordinationError as error:
                if not failing:
                    left_s = max(0.0, (self.trusted_until - now_ns()) / _SECOND)
                    _log.warning("the lease isn't renewed", node=self._node, left_s=round(left_s, 3), error=str(error))
                pause, failing = min(_PAUSE_S, self._every), True
                if not fenced and now_ns() >= self.trusted_until:
                    fenced = True
                    _log.warning("fenced: nothing starts until the lease is renewed", node=self._node, error=str(error))
                continue
            if left == 0:
                self._on_lost("its lease in etcd has ended")
                return
            failing = False
            if fenced:
                fenced = False
                _log.info("the lease is renewed: handlers start again", node=self._node)
            self._trust(sent)
            pause = max(0.0, self._every - (now_ns() - sent) / _SECOND)

    async def _report(self) -> None:
        """The record, as often as the lease is renewed; at once when it says that the node is fit, or not, for more."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._every
        while True:
            await asyncio.sleep(min(_LOOK_S, self._every))
            if clock() < due and (self._told is None or self._fit() == self._told.fit):
                continue
            try:
                await self.tell()
            except LeaseGone:
                continue  # `_keep` is told, too
            except CoordinationError as error:
                _log.debug("not reported", error=str(error))
            due = clock() + self._every

    def _trust(self, sent: int) -> None:
        self.renewed_at = sent
        self.trusted_until = sent + int((self.ttl - self._margin) * _SECOND)
        self._on_trust(self.trusted_until)
