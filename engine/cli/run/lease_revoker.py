"""Revokes the leases of a process that has ended, so that its partitions need not wait for their expiry.

A lease is revoked only after the kernel has reported the process's exit status: then nothing of the process runs any
more. A lease id is never reused, so another process under the same node name has another lease (docs/adr/0024).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, DeleteKey, PutKey, Unavailable
from evenlane.ring.membership.records import MOST_BYTES, HeldRecord, OwnerRecord, RecordError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.cli.run.claims import ProcessClaims
    from evenlane.ring.coordination.ports import Coordination, KeyValue

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.25  # before a retry after etcd didn't answer
_SECOND = 1_000_000_000


class Revoker:
    """Revokes leases of dead processes. `connect` makes an etcd client, a separate one per death: while all processes
    live, the supervisor needs none.
    """

    def __init__(self, connect: Callable[[], Coordination]) -> None:
        self._connect = connect

    async def revoke(self, node: str, claims: ProcessClaims) -> None:
        """End the leases of a dead process of this node.

        Retries without limit while etcd is silent: no lease expires meanwhile, and each may get its whole TTL again
        afterwards. If etcd refuses, the leases expire.
        """
        gone = now_ns()
        try:
            coordination = self._connect()
            try:
                await _Death(coordination, node, claims).revoke()
            finally:
                await coordination.close()
        except (CoordinationError, EvenlaneError) as error:
            _log.warning("a dead node's lease can't be revoked: it will end by itself", node=node, error=str(error))
        else:
            leases, after_s = [*map(_format_lease, claims.leases)], round((now_ns() - gone) / _SECOND, 3)
            _log.info("a dead node's lease is revoked", node=node, leases=leases, after_s=after_s)


class _Death:
    """The death of one process."""

    def __init__(self, coordination: Coordination, node: str, claims: ProcessClaims) -> None:
        self._coordination, self._node, self._claims = coordination, node, claims
        self._is_silent = False

    async def revoke(self) -> None:
        if self._list_lent():
            await self._call_until_answered(self._keep_loans)
        for lease in self._claims.leases:
            await self._call_until_answered(lambda lease=lease: self._coordination.revoke(lease))  # type: ignore[misc]

    def _list_lent(self) -> dict[str, float]:
        """Return the projects whose quota share other nodes may still use, and for how many s."""
        now = now_ns()
        return {project: (until - now) / _SECOND for project, until in self._claims.lent.items() if until > now}

    async def _keep_loans(self) -> None:
        """Pass the dead process's loans on. The next owners must count the quota that others may still use
        (docs/adr/0019), so its partitions are released with a record of the loans, as the process itself would have
        done. If that fails, its leases are kept until the loans have ended.
        """
        owners = [item for item in await self._list_under_lease("owners") if names.number(_last(item)) is not None]
        released = await asyncio.gather(*(self._release(item) for item in owners))
        # An earlier release by the process itself left a record that would expire with the lease.
        if not all(released) or await self._list_under_lease("held"):
            await asyncio.sleep(max(self._list_lent().values(), default=0.0))

    async def _release(self, owner: KeyValue) -> bool:
        epoch = _epoch(owner)
        record = HeldRecord(id=self._node, epoch=epoch, lent=self._list_lent())
        value = encode(record)
        if len(value) > MOST_BYTES:
            return False
        key = names.key(self._claims.cluster, "held", _last(owner), epoch)
        result = await self._coordination.txn(
            [CreatedAt(owner.key, owner.create_revision)], [PutKey(key, value), DeleteKey(owner.key)]
        )
        return result.succeeded

    async def _list_under_lease(self, kind: str) -> list[KeyValue]:
        listing = await self._coordination.list(names.key(self._claims.cluster, kind, ""))
        return [item for item in listing.items if item.lease in self._claims.leases]

    async def _call_until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await ask()
            except Unavailable as error:
                if not self._is_silent:
                    _log.info("a dead node's lease isn't revoked yet", node=self._node, error=str(error))
                self._is_silent = True
            await asyncio.sleep(_PAUSE_S)


def _last(item: KeyValue) -> str:
    """Return the last part of the key."""
    return item.key.rpartition("/")[2]


def _epoch(owner: KeyValue) -> int:
    """Return the epoch under which the partition was owned. A corrupted value has no base."""
    with contextlib.suppress(RecordError):
        return decode(OwnerRecord, owner.key, owner.value).base + owner.create_revision
    return owner.create_revision


def _format_lease(lease: int) -> str:
    """Format a lease like `etcdctl lease list`."""
    return f"{lease:016x}"
