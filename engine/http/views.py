"""What the HTTP server tells of an engine."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from engine import clients
from engine.asking import Asker
from engine.clock import now_ns
from engine.errors import EvenlaneError, Unreachable
from engine.http.readiness import Probe, Readiness
from engine.metrics.exposition import page
from engine.metrics.families import snapshot
from engine.names import LaneId

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from engine.engine import Engine
    from engine.metrics.exposition import Page
    from engine.ports import LaneState, Questions
    from ring.coordination import Coordination

_AT_ONCE = 16  # questions: each takes a second or so of each node


class Views:
    """Answers from what the engine has at the moment; it may be between two terms."""

    def __init__(self, engine: Engine, coordination: Coordination) -> None:
        self._engine = engine
        self._probe = Probe(self._ask_store, coordination.status)
        self._asker = Asker(coordination, engine.settings.env, self._line)
        self._asking = asyncio.Semaphore(_AT_ONCE)

    def health(self) -> dict[str, Any]:
        """The process runs, and its loop turns."""
        return {"node": self._engine.id, "env": self._engine.settings.env}

    async def readiness(self) -> Readiness:
        engine = self._engine
        if engine.node is None or engine.standing is None:
            return Readiness(
                engine.id, not_ready="it has not joined the cluster: it neither owns partitions nor stands by"
            )
        partitions, generation = engine.standing
        return Readiness(engine.id, partitions, generation, await self._not_ready())

    async def _not_ready(self) -> str:
        engine = self._engine
        if engine.stopping:
            return "it is ending: it drains"
        if (missing := await self._probe.missing()) or engine.node is None:
            return missing or "it is joining anew"
        return "" if now_ns() < engine.node.trusted_until else "its lease in etcd isn't renewed"

    async def metrics(self, accept: str) -> Page:
        engine = self._engine
        now, ever = engine.refused
        return await page(snapshot(engine.settings.env, engine.tenants, refused=now, refusals=ever), accept)

    async def why(self, project: str, priority: str | None, within: float | None) -> dict[str, Any]:
        """As `evenlane why`, over the node's own connections. Raises EvenlaneError."""
        if self._asking.locked():
            raise EvenlaneError(f"{_AT_ONCE} questions are being answered already: ask again in a second")
        async with self._asking:
            with clients.explained():
                return await self._asker.why(project, priority, within)

    def _line(self) -> AbstractAsyncContextManager[Questions]:
        line = self._engine.line
        if line is None:
            raise Unreachable(f"node {self._engine.id} has not joined the cluster, so it can't ask the others")
        return nullcontext(line)

    async def _ask_store(self) -> LaneState | None:
        """Any answer of the server that takes it there and back."""
        node = self._engine.node
        return None if node is None else await node.store.state(LaneId("lanes", 0))
