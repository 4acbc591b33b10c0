"""Node's side of the overview: answers on `ask.<cluster>.overview` with its tenants and its own condition.

An answer costs no extra look at queues: it uses the sampler's latest round, made for the metrics. It is built in a
thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.admin.overview.messages import subject
from evenlane.engine.admin.overview.rows import encode_rows, snapshot
from evenlane.engine.admin.shared_responder import FRESH_NS, SharedResponder
from evenlane.engine.base.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Accepted

_MOST_BYTES = 400_000  # a server with a smaller maximum payload gets smaller answers


class OverviewResponder(SharedResponder):
    """Serves overviews on a node. A node without partitions answers, too. `topic_of` is called in a thread; `condition`
    on the loop.
    """

    def __init__(
        self,
        connection: RequestBus,
        cluster: str,
        node: Node,
        tenants: TenantRegistry,
        topic_of: Callable[[str], Accepted | None],
        condition: Callable[[], Condition | None],
        *,
        fresh_ns: int = FRESH_NS,
    ) -> None:
        super().__init__(connection, subject(cluster), self._build_answer, "overview", fresh_ns=fresh_ns)
        self._node, self._tenants = node, tenants
        self._topic_of, self._condition = topic_of, condition

    async def _build_answer(self) -> bytes:
        most_bytes = min(_MOST_BYTES, self._node.store.max_payload // 2)
        errors = self._node.last_errors.texts()
        seen, condition = snapshot(self._tenants, self._count_unread(), errors, now_ns()), self._condition()
        return await asyncio.to_thread(encode_rows, self._node.id, seen, condition, self._topic_of, most_bytes)

    def _count_unread(self) -> int:
        """Count partitions whose backlog isn't fully known: all of them before the session's first round."""
        node = self._node
        if not self._tenants.table and node.queues.projects:
            return len(node.partitions)
        return sum(not partition.opened or partition.lane.is_catching_up for partition in node.partitions.values())
