"""Node's side of the overview: answers on `ask.<env>.overview` with its tenants and its own condition.

An answer costs no extra look at queues: it uses the sampler's latest round, made for the metrics. It is built in a
thread, at most every half second, and sent to all clients that ask in the meantime.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.admin.overview.messages import subject
from evenlane.engine.admin.overview.rows import encode_rows, snapshot
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import INBOX

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Accepted

_log = structlog.get_logger(__name__)

_FRESH_NS = 500_000_000
_AT_ONCE = 64  # requests per _FRESH_NS; further ones get no answer
_MOST_BYTES = 400_000  # a server with a smaller maximum payload gets smaller answers


class OverviewResponder:
    """Serves overviews on a node: call `listen` on an open connection, and `close` before that is closed. A node
    without partitions answers, too. `topic_of` is called in a thread; `condition` on the loop.

    Invariants: `_body` is the answer made at `_made_at`; the task `_task` runs while `_replies` has clients to answer.
    """

    def __init__(
        self,
        connection: RequestBus,
        env: str,
        node: Node,
        tenants: TenantRegistry,
        topic_of: Callable[[str], Accepted | None],
        condition: Callable[[], Condition | None],
        *,
        fresh_ns: int = _FRESH_NS,
    ) -> None:
        self._fresh_ns = fresh_ns
        self._connection, self._env, self._node, self._tenants = connection, env, node, tenants
        self._topic_of, self._condition = topic_of, condition
        self._body, self._made_at = b"", 0
        self._replies: list[str] = []
        self._counted, self._since = 0, 0
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        self._connection.listen(subject(self._env), self._on_request)

    async def close(self) -> None:
        """Close. No effect if it never listened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_request(self, _subject: bytes, reply: bytes, _headers: bytes, _body: bytes) -> None:
        name = reply.decode("ascii", "replace")
        if not name.startswith(INBOX) or not name.isascii() or not name.isprintable() or self._count_request(now_ns()):
            return
        self._replies.append(name)
        if self._task is None:
            self._task = asyncio.create_task(self._answer(), name="overview")

    def _count_request(self, now: int) -> bool:
        """Count a request; return whether it is one too many."""
        if now - self._since >= self._fresh_ns:
            self._since, self._counted = now, 0
        self._counted += 1
        return self._counted > _AT_ONCE

    async def _answer(self) -> None:
        """Build an answer if needed, and send it to all clients that have asked by then."""
        try:
            if not self._body or now_ns() - self._made_at >= self._fresh_ns:
                self._body = await self._build_answer()
                self._made_at = now_ns()
            while self._replies:
                self._connection.send(self._replies.pop(), self._body)
        except Disconnected:
            _log.debug("whoever asked for an overview is out of reach")
        except Exception:  # noqa: BLE001 - a defect here must not end the node
            _log.exception("an overview could not be told")
        finally:
            self._replies.clear()
            self._task = None

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
