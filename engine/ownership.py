"""Ownership in its simple form: one node owns all partitions, under a lease in etcd; others stand by.

A node registers under its id, then creates the owner keys in rising order; who finds one taken waits until it is
deleted, which it sees. The create-revision of an owner key is the partition's epoch. The lease is trusted for less
time than etcd does: until the last renewal was *sent*, plus TTL, minus a margin.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, NamedTuple

import structlog

from engine import names
from engine.clock import now_ns
from engine.errors import ConfigError
from ring.coordination import Absent, CoordinationError, CreatedAt, Delete, Listing, Put

if TYPE_CHECKING:
    from collections.abc import Callable

    from ring.coordination import Coordination

_log = structlog.get_logger(__name__)

_CHUNK = 64  # keys of one transaction; etcd allows 128
_SECOND = 1_000_000_000
_PAUSE_S = 0.5


class Share(NamedTuple):
    """Partitions held under one epoch."""

    partitions: range
    epoch: int


class Ownership:
    """`on_trust(until_ns)` is told after each renewal until when handlers may start; `on_lost(reason)` once,
    when the lease is gone or can't be renewed in time. `ttl` is in whole seconds.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        node_id: str,
        ttl: int,
        on_trust: Callable[[int], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._coordination, self._env, self.id, self._ttl = coordination, env, node_id, ttl
        self._on_trust, self._on_lost = on_trust, on_lost
        self._margin = max(0.5, ttl / 5)
        self._lease = 0
        self.trusted_until = 0
        self._shares: list[Share] = []
        self._keeper: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Register. An id that is taken may be one's own from before a crash: it is waited for until its lease
        must have ended, then ConfigError says that another node runs under it.
        """
        key = names.key(self._env, "nodes", self.id)
        give_up = now_ns() + 3 * self._ttl * _SECOND
        waited = False
        while True:
            sent = now_ns()
            self._lease = await self._coordination.grant(self._ttl)
            value = json.dumps({"host": os.uname().nodename, "pid": os.getpid()}).encode()
            if (await self._coordination.txn([Absent(key)], [Put(key, value, self._lease)])).succeeded:
                break
            await self._coordination.revoke(self._lease)
            if now_ns() > give_up:
                raise ConfigError(f"a node {self.id!r} runs already: give this one another --node")
            if not waited:
                _log.info("the node's id is still registered: waiting for its lease to end", node=self.id)
            waited = True
            await asyncio.sleep(_PAUSE_S)
        self._trust(sent)
        self._keeper = asyncio.create_task(self._keep(), name="lease")

    async def acquire(self, partitions: int, on_standby: Callable[[], None]) -> list[Share]:
        """All owner keys, however long that takes; `on_standby` is called once if somebody holds one."""
        waited = False
        for start in range(0, partitions, _CHUNK):
            chunk = range(start, min(start + _CHUNK, partitions))
            keys = [names.key(self._env, "owners", number) for number in chunk]
            value = json.dumps({"id": self.id}).encode()
            while True:
                result = await self._coordination.txn(
                    [Absent(key) for key in keys], [Put(key, value, self._lease) for key in keys]
                )
                if result.succeeded:
                    break
                if not waited:
                    waited = True
                    on_standby()
                await self._freed(set(keys))
            self._shares.append(Share(chunk, result.revision))
        return self._shares

    async def release(self) -> None:
        """Give back what is held, if it is still ours; others may take it at once."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        try:
            for share in self._shares:
                keys = [names.key(self._env, "owners", number) for number in share.partitions]
                await self._coordination.txn(
                    [CreatedAt(key, share.epoch) for key in keys], [Delete(key) for key in keys]
                )
            if self._lease:
                await self._coordination.revoke(self._lease)
        except CoordinationError as error:
            _log.warning("not released: the lease will end by itself", error=str(error))
        self._shares = []
        self._lease = 0

    async def _freed(self, keys: set[str]) -> None:
        """Wait until one of these keys goes: for the deletion that is seen, never for a timer."""
        watch = self._coordination.watch(names.key(self._env, "owners") + "/")
        try:
            async for change in watch:
                if isinstance(change, Listing):
                    if not keys & {item.key for item in change.items}:
                        return
                elif change.kind == "delete" and change.item.key in keys:
                    return
        finally:
            await watch.aclose()

    async def _keep(self) -> None:
        pause = self._ttl / 3
        while True:
            await asyncio.sleep(pause)
            pause = self._ttl / 3
            sent = now_ns()
            try:
                left = await self._coordination.keep_alive(self._lease)
            except CoordinationError as error:
                _log.warning("the lease could not be renewed", error=str(error))
                left, pause = None, _PAUSE_S
            if left == 0:
                self._on_lost("its lease in etcd has ended")
                return
            if left is not None:
                self._trust(sent)
            elif now_ns() >= self.trusted_until:
                self._on_lost(f"its lease in etcd could not be renewed within {self._ttl} s")
                return

    def _trust(self, sent: int) -> None:
        self.trusted_until = sent + int((self._ttl - self._margin) * _SECOND)
        self._on_trust(self.trusted_until)
