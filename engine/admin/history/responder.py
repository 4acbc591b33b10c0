"""Node's side of the history: answers on `ask.<cluster>.history` with its figures of the last two minutes.

A viewer of the status page asks once, when no other one is there; so while nobody looks, the history costs only its
samples.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.admin.history.columns import encode_history
from evenlane.engine.admin.history.messages import subject
from evenlane.engine.admin.shared_responder import FRESH_NS, SharedResponder
from evenlane.engine.base.background_work import low_priority

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.tenants.history import HistoryCopy
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Accepted


class HistoryResponder(SharedResponder):
    """Serves the history of a node. `topic_of` is called in a thread."""

    def __init__(
        self,
        connection: RequestBus,
        cluster: str,
        node: Node,
        tenants: TenantRegistry,
        topic_of: Callable[[str], Accepted | None],
        *,
        fresh_ns: int = FRESH_NS,
    ) -> None:
        super().__init__(connection, subject(cluster), self._build_answer, "history", fresh_ns=fresh_ns)
        self._node, self._tenants, self._topic_of = node, tenants, topic_of

    async def _build_answer(self) -> bytes:
        store = self._node.store
        return await asyncio.to_thread(self._encode, self._tenants.history.copy(), store.now(), store.max_payload // 2)

    def _encode(self, history: HistoryCopy, now: int, most_bytes: int) -> bytes:
        node = self._node
        with low_priority():
            return encode_history(node.id, history, now, self._topic_of, node.cluster_config, most_bytes)
