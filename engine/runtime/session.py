"""One session of a node: from its registration under a lease to the end of that lease, or of the node."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.base.config.settings import CLUSTER_SETTINGS
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.ownership.membership import Membership
from evenlane.engine.cluster.subscriptions.seen_publisher import SeenPublisher
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.errors import EvenlaneError, NodeIdInUse, Unreachable
from evenlane.engine.node.node import Node
from evenlane.engine.runtime.health import condition
from evenlane.engine.runtime.node_status import NodeStatus
from evenlane.engine.runtime.services import NodeServices
from evenlane.engine.runtime.serving_status import ServingStatus, explain_waiting, patience_s
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.engine.runtime.subscription_guard import SubscriptionGuard
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.core.ports import OpenStore
    from evenlane.engine.core.queue.subscription_filter import SubscriptionFilter
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.runtime.process import ClusterParts, ProcessParts
    from evenlane.engine.telemetry.node_health import Condition

_log = structlog.get_logger(__name__)

_PLANNED_OUT_S = 2.0  # time for which a leaving node serves while the leader reassigns its partitions


class Session:
    """One session, which runs once: `run` creates a store, a node, the node's services and a lease, and closes all of
    them.

    `stop` requests a drain. `on_ready(partitions, generation)` is called when the node serves or is on standby, and
    after each plan that was carried out from then on. `is_rejoin`: the process has had a session before, so servers
    that don't answer aren't waited for, and etcd may have lost the cluster config.

    Invariants: `node` and `lease` are both set from before the registration, `membership` from after it; all three are
    None before that, and again just before the lease is revoked. A session that is over has a `reason`, and its node is
    never trusted again. A `fatal` session is over.
    """

    def __init__(
        self,
        process: ProcessParts,
        cluster: ClusterParts,
        stop: asyncio.Event,
        on_ready: Callable[[int, int], None],
        *,
        http_address: str | None = None,
        is_rejoin: bool = False,
    ) -> None:
        self._process, self._cluster, self._stop = process, cluster, stop
        self._http_address, self._is_rejoin = http_address, is_rejoin
        self._status = ServingStatus(on_ready, patience_s=patience_s(process.settings.lease_ttl))
        self.node: Node | None = None
        self.lease: NodeLease | None = None
        self.membership: Membership | None = None
        self._services: NodeServices | None = None
        self.has_joined = False
        self.reason = self.fatal = ""
        self._over = asyncio.Event()
        self._is_orderly = False  # nothing had failed when the node began to stop
        self._is_clean = True  # all started messages are completed and settled, and all partitions released

    async def run(self) -> bool:
        """Own partitions and work. Returns whether all started messages were completed and settled. Raises Unreachable,
        and EvenlaneError if the process can't continue.
        """
        with connections.translate_errors():
            async with AsyncExitStack() as resources:
                if await self._join(resources):
                    await self._serve(resources)
        if self.fatal:
            raise EvenlaneError(f"node {self._process.id} stops: {self.fatal}")
        return self._is_clean

    # ---- state for other parts

    @property
    def standing(self) -> tuple[int, int] | None:
        """Partitions and generation, while the node serves or is on standby."""
        return self._status.current if self.node is not None else None

    @property
    def waiting(self) -> str:
        """Why the node neither serves nor is on standby, in words; empty if it does, or has no membership."""
        return explain_waiting(self.membership) if self._status.current is None and self.membership is not None else ""

    @property
    def bus(self) -> RequestBus | None:
        """The connection for requests to other nodes."""
        return self._services.line if self._services is not None else None

    def condition(self) -> Condition | None:
        """Return the node's present condition; None while there is no lease or no node."""
        if self.node is None or self.membership is None or self.lease is None:
            return None
        process, cluster = self._process, self._cluster
        return condition(
            self.node, self.membership, self.lease, leads=cluster.controller.leading.is_set(),
            slots=process.settings.concurrency, indexed=cluster.tenants.indexed, loop_lag_s=process.loop_lag.seconds,
        )  # fmt: skip

    # ---- lifecycle

    async def _join(self, resources: AsyncExitStack) -> bool:
        """Open the session's resources, and register. Returns False if it was stopped before."""
        process, cluster = self._process, self._cluster
        guard = SubscriptionGuard(process.settings, process.coordination, cluster.registry, self._on_fatal)
        chosen = guard.begin()
        resources.callback(guard.close)
        store = process.connections.store(process.settings, process.id, feeds=True)
        resources.push_async_callback(store.close)
        if not await self._run_unless_stopped(self._wait_for_answer(store.open)):
            return False
        # A cluster of NATS servers may be electing leaders, also of streams that another node creates at this moment.
        if not await self._run_unless_stopped(self._wait_for_answer(partial(cluster.prepare, store))):
            return False
        if not self._is_rejoin:
            for risk in await store.find_risks():
                _log.warning("acknowledged messages may be lost", cause=risk)
        node = self._build_node(store, chosen)
        self._services = NodeServices(
            process.connections, process.settings, node, cluster.topics.cache, cluster.tenants, process.troubles,
            self.condition, process.supervision.report_lent,
        )  # fmt: skip
        resources.push_async_callback(self._services.close)
        await self._services.open()
        report = NodeStatus(
            node, process.stats, process.records, process.troubles, process.unreadable, self._stop,
            process.routes.fingerprint, lambda: cluster.tenants.loads.load, process.settings, self._http_address,
        )  # fmt: skip
        lease = process.keeper.lease(
            report.record, self._on_trust, self._on_lost, process.leases.note_current, process.ownership.note_difference
        )
        node.trust(0)
        self.node, self.lease = node, lease
        cluster.topics.attach(node)
        report.start()
        resources.callback(report.stop)
        resources.push_async_callback(self._give_lease_back, node, lease)
        self.has_joined = await self._run_unless_stopped(self._register(lease))
        if self.has_joined:
            await guard.confirm()
        return self.has_joined and not self.fatal

    async def _serve(self, resources: AsyncExitStack) -> None:
        process, cluster = self._process, self._cluster
        assert self.node is not None
        assert self.lease is not None
        node, lease = self.node, self.lease
        await cluster.controller.start()
        self.membership = membership = Membership(
            process.coordination, process.settings.cluster, process.id, lease, node.owned,
            partitions=cluster.config.partitions, records=process.records, moves=process.moves,
            registry=lambda: cluster.registry.view,
            ownership=process.ownership, unreadable=process.unreadable,
            on_plan=self._status.on_carried_out, on_lost=self._on_lost, on_fatal=self._on_fatal,
        )  # fmt: skip
        node.registry.on_reset = membership.reopen
        node.trust(lease.trusted_until)
        await node.start()
        seen = SeenPublisher(
            process.coordination, process.settings.cluster, process.id, lease.id, cluster.registry, node.registry
        )
        resources.push_async_callback(seen.close)
        resources.push_async_callback(self._stop_node, node, membership)
        await node.registry.begin()
        seen.open()  # before any partition is claimed
        membership.start()
        await self._wait_until_over(membership)
        if not self._over.is_set():
            grace = process.settings.drain_grace
            _log.info("draining", grace=grace)
            node_grace = _of_grace(grace)
            self._is_clean = await membership.leave(min(_PLANNED_OUT_S, node_grace / 4), node_grace)
        self._is_orderly = True

    async def _stop_node(self, node: Node, membership: Membership) -> None:
        """Stop the node and its membership, however the session ended, before the lease is revoked."""
        await membership.end()
        node.trust(0)
        # Only a process that was asked to end is ended in order. Otherwise a message may be the cause of its end.
        is_orderly = self._is_orderly and not self.fatal
        is_settled = await node.stop(2.0, process_ends=is_orderly and self._stop.is_set())
        if is_orderly:
            await membership.publish_release()
        self._is_clean = self._is_clean and is_settled
        _log.info("node stopped", clean=self._is_clean and is_orderly, **asdict(node.counters))

    async def _give_lease_back(self, node: Node, lease: NodeLease) -> None:
        self.node = self.lease = self.membership = None
        self._cluster.topics.detach()
        if self._over.is_set() or not self._is_clean:  # some partitions, and their lent quota, weren't released
            await node.queues.shares.wait_until_repaid()
        await lease.end()
        self._process.leases.add_previous(lease.id)

    def _build_node(self, store: OpenStore, chosen: SubscriptionFilter) -> Node:
        process, cluster, settings = self._process, self._cluster, self._process.settings
        return Node(
            store, cluster.config, process.routes, cluster.topics.topic, draining_of=cluster.topics.list_draining,
            cluster=settings.cluster, node_id=process.id,
            concurrency=settings.concurrency, settle_interval=settings.settle_interval,
            push=process.pusher.push, fallback=process.fallback,
            scheduler=process.scheduler(settings.concurrency) if process.scheduler is not None else None,
            counters=process.counters, times=cluster.times, on_stop=self._on_fatal, on_fenced=self._on_lost,
            unreadable=process.unreadable, error_texts=settings.log_errors == "text",
            tracer=process.tracer, chosen=chosen,
            limits=MemoryBudget(settings.payload_budget, settings.read_ahead, settings.index_limit),
        )  # fmt: skip

    async def _register(self, lease: NodeLease) -> None:
        """Register under the lease. First revoke leases of earlier sessions, which would otherwise keep the node's id
        and partitions until they expire.
        """
        process = self._process
        try:
            await process.leases.revoke_previous()
            if self._is_rejoin:  # an etcd that was wiped may have lost the config
                config = {name: getattr(self._cluster.config, name) for name in CLUSTER_SETTINGS}
                await agree_cluster_config(process.coordination, process.settings.env, config)
            await self._wait_for_answer(lease.join)
        except NodeIdInUse:
            raise
        except (CoordinationError, EvenlaneError) as error:
            if not self._is_rejoin:
                raise
            raise Unreachable(str(error)) from error  # etcd may soon accept a request that it rejects now

    async def _wait_for_answer(self, probe: Callable[[], Awaitable[None]]) -> None:
        """Wait for a server's answer, in the first session only. Raises Unreachable."""
        timeout = 0 if self._is_rejoin else self._process.settings.start_timeout
        await wait_until_answered(probe, timeout, _log.warning)

    async def _run_unless_stopped(self, work: Coroutine[Any, Any, object]) -> bool:
        """Return whether the work was done before `stop`. Raises the work's exceptions."""
        tasks = [asyncio.create_task(work), asyncio.create_task(self._stop.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            return tasks[0].done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_until_over(self, membership: Membership) -> None:
        """Wait for the end of the session, or for `stop`."""
        waiting = asyncio.create_task(self._status.limit_waiting(membership))
        try:
            await self._run_unless_stopped(self._over.wait())
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    # ---- reports of its parts

    def _on_trust(self, until: int) -> None:
        if self.node is not None and self.membership is not None and not self._over.is_set():
            self.node.trust(until)
            self.membership.on_renewed(until)

    def _on_lost(self, reason: str) -> None:
        """End the session: no handler starts from now on."""
        self.reason = self.reason or reason
        if self.node is not None:
            self.node.trust(0)
        self._over.set()

    def _on_fatal(self, reason: str) -> None:
        self.fatal = reason
        self._on_lost(reason)


def _of_grace(grace: float) -> float:
    """Return the node's part of the drain time; releasing partitions in etcd needs the rest."""
    return max(grace / 2, grace - 5.0)
