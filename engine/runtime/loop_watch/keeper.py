"""Thread next to a node's event loop, with its own etcd client: keeps the lease and watches the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.loop_thread import SameLoop
from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.engine.runtime.loop_watch.loop_watch import LoopWatch
from evenlane.engine.runtime.loop_watch.node_loop import NodeLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.loop_lag import LoopLag
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import NodeRecord

_log = structlog.get_logger(__name__)


class Keeper:
    """Keeps a process's lease and watches its event loop, in a thread if the lease has one. `coordination` is the
    node's own client, used if there is no thread.
    """

    def __init__(self, connect: Connections, settings: Settings, node_id: str, coordination: Coordination) -> None:
        self._settings, self._id = settings, node_id
        self._runner = connect.lease_runner()
        self._has_thread = not isinstance(self._runner, SameLoop)
        self._coordination = connect.etcd(settings) if self._has_thread else coordination
        self._had: set[int] = set()  # all leases of this process
        self._lease: NodeLease | None = None  # of the present session
        self._watch: LoopWatch | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def blocked_s(self) -> float:
        """Total seconds for which the event loop was blocked, counting blocks of 1 s and more."""
        return self._watch.blocked_s if self._watch is not None else 0.0

    def lease(
        self,
        record: Callable[[], NodeRecord],
        on_trust: Callable[[int], None],
        on_lost: Callable[[str], None],
        on_id: Callable[[int], None],
        on_difference: Callable[[str], None],
    ) -> NodeLease:
        """Return a lease for one session; see `NodeLease`."""
        settings = self._settings

        def note(lease: int) -> None:
            if lease:
                self._had.add(lease)
            on_id(lease)

        self._lease = NodeLease(
            self._coordination, settings.cluster, self._id, int(settings.lease_ttl), record, on_trust, on_lost, note,
            on_difference=on_difference, had=self._had, runner=self._runner,
        )  # fmt: skip
        return self._lease

    def watch(self, lag: LoopLag, node: Callable[[], Node | None], handler: str, troubles: Troubles) -> None:
        """Watch the running event loop until `close`. `node()` returns the present node."""
        if not self._has_thread:
            return
        settings = self._settings
        loop = NodeLoop(self._id, settings.cluster, self._coordination, lag, node, handler, self._publish)
        self._watch = LoopWatch(loop, troubles, settings.block_limit, settings.lease_ttl)
        self._watching = asyncio.create_task(self._runner.run(self._watch.run()), name="loop watch")
        self._watching.add_done_callback(_on_end)

    async def _publish(self) -> None:
        """Write the node's record, if it has a lease. Raises CoordinationError."""
        if self._lease is not None:
            await self._lease.publish()

    async def close(self) -> None:
        """Stop. No effect if nothing was started."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._has_thread:
            await self._runner.run(self._coordination.close())
        await self._runner.close()


def _on_end(task: asyncio.Task[None]) -> None:
    """Log a failed watch: it is a defect, but the node works without the watch."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("nobody watches the event loop any more", exc_info=error)
