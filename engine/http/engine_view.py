"""View of an engine for the HTTP server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from evenlane.engine.admin.history.client import HistoryClient
from evenlane.engine.admin.overview.subscriptions import read_subscriptions
from evenlane.engine.admin.topics.change import count_waiting
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.http.live_feed import LiveFeed
from evenlane.engine.http.liveness import Health, Liveness
from evenlane.engine.http.puts import PutService
from evenlane.engine.http.readiness import Probe, Readiness
from evenlane.engine.http.subscription_clients import SubscriptionClients
from evenlane.engine.http.topic_states import change_state
from evenlane.engine.http.topics import TopicService
from evenlane.engine.producer.producer import Producer
from evenlane.engine.telemetry.prometheus.exposition import kind_of, page
from evenlane.engine.telemetry.prometheus.snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.admin.history.merge import PastSecond
    from evenlane.engine.control.topics.switch import State
    from evenlane.engine.core.ports import LaneState
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.http.dead_letters import DeadLetterService
    from evenlane.engine.telemetry.node_view import NodeView
    from evenlane.engine.telemetry.prometheus.exposition import Page
    from evenlane.ring.coordination.ports import Coordination

_AT_ONCE = 16  # concurrent explanations; each takes every node a second or so
_NOT_JOINED = "it has not joined the cluster: it neither owns partitions nor is on standby"
_FRESH_NS = 500_000_000
_FRESH_POSITIONS_NS = 5_000_000_000  # of all lanes: a request each
_PATIENCE_S = 60.0


class EngineView:
    """Answers requests from the engine's present state, which may be between two sessions."""

    def __init__(self, view: NodeView, coordination: Coordination) -> None:
        self._view, self._coordination = view, coordination
        self._probe = Probe(self._ask_store, coordination.status)
        self._liveness = Liveness(self._is_trusted, self._probe_servers, max(_PATIENCE_S, 6 * view.settings.lease_ttl))
        self._clients = SubscriptionClients(view.settings, coordination, self._line)
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._subscriptions = SingleFlight(self._read_subscriptions, fresh_ns=_FRESH_POSITIONS_NS)
        self._pages: dict[str, SingleFlight[Page]] = {}
        self._history_client = HistoryClient(coordination, view.settings.cluster, self._line)
        self.watching = LiveFeed(self._overview, self._history)
        self.puts = PutService(lambda: Producer(settings=view.settings), view.id)
        self.topics = TopicService(
            coordination, view.settings.env, f"http@{view.id}", partial(count_waiting, view.settings)
        )

    async def health(self) -> Health:
        """Any answer shows that the process runs and its loop isn't blocked."""
        view = self._view
        return Health(view.id, view.settings.env, "" if view.is_stopping else await self._liveness.explain_stuck())

    def _is_trusted(self) -> bool:
        node = self._view.node
        return node is not None and now_ns() < node.trusted_until

    async def _probe_servers(self) -> None:
        """Ask both servers as a new process would. Raises CoordinationError, EvenlaneError."""
        settings = self._view.settings
        etcd, bus = connections.etcd(settings), connections.bus(settings, f"{self._view.id} liveness")
        try:
            await etcd.status()
            await bus.open()
            await bus.close()
        finally:
            await etcd.close()

    async def readiness(self) -> Readiness:
        view = self._view
        if view.node is None or view.standing is None:
            return Readiness(view.id, not_ready=await self._explain_not_serving())
        partitions, generation = view.standing
        return Readiness(view.id, partitions, generation, await self._explain_not_ready())

    async def _explain_not_serving(self) -> str:
        if self._view.node is None or self._view.troubles.not_ready:
            return self._view.troubles.not_ready or _NOT_JOINED
        return await self._probe.find_missing() or self._view.waiting or _NOT_JOINED

    async def _explain_not_ready(self) -> str:
        view = self._view
        if view.is_stopping:
            return "it is shutting down: it is draining"
        if (missing := await self._probe.find_missing()) or view.node is None:
            return missing or view.troubles.not_ready or "it is rejoining the cluster"
        if now_ns() >= view.node.trusted_until:
            return "its lease in etcd isn't renewed"
        return view.troubles.not_ready

    async def metrics(self, accept: str) -> Page:
        """Return the metrics page, at most half a second old, so that clients can't keep the node busy."""
        kind = kind_of(accept)
        if kind not in self._pages:
            self._pages[kind] = SingleFlight(lambda: page(snapshot(self._view), kind), fresh_ns=_FRESH_NS)
        return await self._pages[kind].read()

    async def why(
        self,
        project: str,
        priority: str | None,
        within: float | None,
        *,
        positions: bool = False,
        subscription: str | None = None,
    ) -> dict[str, Any]:
        """Explain waits like `evenlane why`, on the node's own connections. Raises EvenlaneError."""
        async with self._ask_nodes():
            client = (await self._clients.of(subscription)).why
            return await client.why(project, priority, within, positions=positions)

    async def overview(self, subscription: str | None) -> bytes:
        """Return the overview of a subscription in JSON; of the node's own at most half a second old. Raises
        EvenlaneError.
        """
        clients = await self._clients.of(subscription)
        if clients is self._clients.own:
            return await self.watching.now()
        async with self._ask_nodes():
            return msgspec.json.encode(await clients.overview.overview())

    @asynccontextmanager
    async def _ask_nodes(self) -> AsyncIterator[None]:
        if self._asking.locked():
            raise EvenlaneError(f"{_AT_ONCE} requests are already being answered: try again in a second")
        async with self._asking:
            with connections.translate_errors():
                yield

    async def dead_letters(self, subscription: str | None) -> DeadLetterService:
        """Return the dead letters of a subscription. Raises EvenlaneError."""
        return (await self._clients.of(subscription)).dead_letters

    async def change_state(self, project: str, state: State, by: str) -> dict[str, Any]:
        author = f"the status page of {self._view.id} ({by})"
        return await change_state(self._coordination, self._view.settings.env, project, state, author)

    async def close(self) -> None:
        """End watching, replays and puts; other requests are still answered."""
        await self.watching.close()
        await self._clients.close()
        await self.puts.close()

    async def _overview(self) -> dict[str, Any]:
        """Return the overview; with all subscriptions if there are named ones."""
        with connections.translate_errors():
            overview = await self._clients.own.overview.overview()
            if self._view.registry.subscriptions:
                overview = {**overview, "subscriptions": await self._subscriptions.read()}
        return overview

    async def _read_subscriptions(self) -> list[dict[str, Any]]:
        node, view = self._view.node, self._view
        if node is None:
            return []
        env, partitions = view.settings.env, node.cluster_config.partitions
        return await read_subscriptions(self._coordination, node.store, env, partitions, view.registry)

    async def _history(self) -> list[PastSecond]:
        with connections.translate_errors():
            return await self._history_client.history()

    def _line(self) -> AbstractAsyncContextManager[RequestBus]:
        line = self._view.line
        if line is None:
            raise Unreachable(f"node {self._view.id} has not joined the cluster, so it can't ask the others")
        return nullcontext(line)

    async def _ask_store(self) -> LaneState | None:
        """Request any answer that requires a round trip to the server."""
        node = self._view.node
        return None if node is None else await node.store.state(LaneId("lanes", 0))
