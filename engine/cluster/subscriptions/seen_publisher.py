"""Has a node follow each new registry of subscriptions, and then says so in etcd."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

import structlog

from evenlane.engine.base import names
from evenlane.ring.coordination.ports import CoordinationError, Denied, LeaseGone
from evenlane.ring.membership.records import SeenRecord, encode

if TYPE_CHECKING:
    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)

_PAUSE_S = 0.2
_AGAIN_S = 10.0


class Adopter(Protocol):
    """See `evenlane.engine.node.partitions.registry_adoption.RegistryAdoption`."""

    def adopt(self, view: RegistryView) -> None: ...

    async def complete(self) -> None: ...

    @property
    def has_unlisted(self) -> bool: ...


class SeenPublisher:
    """Writes `seen/<node>` under a node's `lease`: nothing that the node does follows an older registry. Call `open`
    when the node is registered, `close` before it stops.

    Invariant: `_seen` is the revision in etcd, 0 if there is none.
    """

    def __init__(
        self, coordination: Coordination, cluster: str, node_id: str, lease: int, registry: RegistryWatch, node: Adopter
    ) -> None:
        self._coordination, self._lease, self._registry, self._node = coordination, lease, registry, node
        self._key = names.key(cluster, "seen", node_id)
        self._seen = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._registry.on_change.append(self._on_change)
        self._on_change(self._registry.view)
        if self._node.has_unlisted:
            self._changed.set()
        self._task = asyncio.create_task(self._run(), name="registry seen")

    async def close(self) -> None:
        """Stop. The key goes with the lease. No effect if never opened."""
        if self._task is not None:
            self._registry.on_change.remove(self._on_change)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _on_change(self, view: RegistryView) -> None:
        self._node.adopt(view)
        if view.revision != self._seen:
            self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._wait()
            self._changed.clear()
            view = self._registry.view
            await self._node.complete()
            try:
                await self._write(view.revision)
            except LeaseGone:
                return  # the lease's keeper gets the same error
            except CoordinationError as error:
                level = _log.warning if isinstance(error, Denied) else _log.info
                level("not published yet which subscriptions the node follows", error=str(error))
                self._changed.set()
                await asyncio.sleep(_PAUSE_S)
            else:
                self._seen = view.revision

    async def _wait(self) -> None:
        """Wait for a change; or, while the registry lacks a subscription, until it is time to look for it again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S if self._node.has_unlisted else None):
                await self._changed.wait()

    async def _write(self, revision: int) -> None:
        if revision == self._seen:
            return
        if revision:
            await self._coordination.put(self._key, encode(SeenRecord(revision=revision)), self._lease)
        else:
            await self._coordination.delete(self._key)
