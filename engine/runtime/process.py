"""Parts of a node's process that outlive its sessions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.names import Kind, LaneId
from evenlane.engine.base.process_stats import ProcessStats
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.connections import config_known_so_far, load_store
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
from evenlane.engine.control.leader.leader import build_leader
from evenlane.engine.control.subscriptions.subscription_monitor import SubscriptionMonitor
from evenlane.engine.core.ports import UNLIMITED
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.node.push.lazy_pusher import LazyPusher
from evenlane.engine.node.signals.counters import Counters
from evenlane.engine.runtime.embedded.etcd import CORRUPTING_VERSIONS
from evenlane.engine.runtime.leases import LeaseLedger
from evenlane.engine.runtime.loop_watch.keeper import Keeper
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.engine.runtime.topics import NodeTopics
from evenlane.engine.scaler.host import ScalerHost, find_target
from evenlane.engine.telemetry.loop_lag import LoopLag
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.tracing.switch import find_attempt_tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.handlers.routes import RouteTable
    from evenlane.engine.node.node import Node
    from evenlane.engine.runtime.supervision import Supervision
    from evenlane.engine.tracing.attempt_tracer import AttemptTracer

_log = structlog.get_logger(__name__)


class ProcessParts:
    """Parts that don't depend on etcd's answers. Call `open`, then `close`."""

    def __init__(
        self,
        settings: Settings,
        routes: RouteTable,
        fallback: Handler | None,
        scheduler: Callable[[int], Scheduler[Queue]] | None,
        connections: Connections,
        supervision: Supervision,
        tracer_provider: object | None = None,
    ) -> None:
        self.settings, self.id = settings, settings.node_id()
        self.routes, self.fallback, self.scheduler = routes, fallback, scheduler
        self.connections, self.supervision = connections, supervision
        load_store(settings)
        self.coordination = connections.etcd(settings)
        self.keeper = Keeper(connections, settings, self.id, self.coordination)
        self.leases = LeaseLedger(self.coordination, supervision, settings.cluster)
        self.pusher = LazyPusher(settings, self._inject_trace)
        self._tracer_provider = tracer_provider
        self.tracer: AttemptTracer | None = None  # decided by `open`
        self.stats, self.loop_lag = ProcessStats(), LoopLag()
        self.records = RecordReader(settings.cluster)
        self.troubles = Troubles()
        self.ownership = OwnershipDisagreement(self.troubles)
        self.unreadable = UnreadableRecords(self.troubles)
        self.counters, self.moves = Counters(), Counter[str]()

    async def open(self, node: Callable[[], Node | None]) -> None:
        """Watch the event loop. `node()` returns the node of the present session. Raises ConfigError."""
        settings = self.settings
        self.tracer = find_attempt_tracer(
            settings.traces, self._tracer_provider, error_texts=settings.log_errors == "text"
        )
        await self.pusher.check()
        self.loop_lag.open()
        self.keeper.watch(self.loop_lag, node, self.routes.name, self.troubles)

    def _inject_trace(self, headers: dict[str, str]) -> None:
        if self.tracer is not None:
            self.tracer.inject(headers)

    async def close(self) -> None:
        """Close. No effect if never opened."""
        self.loop_lag.close()
        await self.keeper.close()
        await self.coordination.close()


async def read_cluster_config(process: ProcessParts) -> ClusterConfig:
    """Wait for etcd, and agree on the cluster config. Raises Unreachable, ConfigError."""
    settings, coordination = process.settings, process.coordination
    version = await wait_until_answered(coordination.status, settings.start_timeout, _log.warning)
    if version in CORRUPTING_VERSIONS and not all(map(_is_loopback, settings.etcd)):
        _log.warning("this etcd may corrupt its data when it is killed: use 3.5.3 or newer", version=version)
    chosen = config_known_so_far(settings)
    return await wait_until_answered(
        lambda: agree_cluster_config(coordination, settings.env, chosen), settings.start_timeout, _log.warning
    )


class ClusterParts:
    """Parts that depend on the cluster's `config`: topics, statistics, and the process's candidacy as leader.

    `lease()` returns the lease of the present session, 0 between two sessions. Without `shares`, the leader lends no
    quota. Raises ConfigError if the leader can't find what it must scale.
    """

    def __init__(self, process: ProcessParts, config: ClusterConfig, lease: Callable[[], int], *, shares: bool) -> None:
        settings = process.settings
        self.config, self._cluster, self._start_timeout = config, settings.cluster, settings.start_timeout
        self.tenants = TenantRegistry(
            config.priorities, settings.metrics_projects, config.max_group_qps, recovery_s=settings.scaling_recovery
        )
        self.times = LatencyStats(len(config.priorities))
        self.registry = RegistryWatch(process.coordination, settings.env)
        self.topics = NodeTopics(process.coordination, settings.env, config, process.troubles, settings.subscription)
        self.scaler = ScalerHost(process.coordination, settings, process.records)
        self.controller = build_leader(
            process.id, process.coordination, process.connections, settings, config, self.topics.cache, process.records,
            lease, takes=self._takes, shares=shares, replica_target=find_target(settings),
        )  # fmt: skip
        self.subscriptions = SubscriptionMonitor(
            process.coordination, settings.env, self.registry, self.controller.leading
        )

    def _takes(self, project: str) -> bool:
        return self.registry.view.takes_project(self._cluster, project)

    async def open(self) -> None:
        """Return when all topics and subscriptions are known. Raises Unreachable, PortUnavailable."""
        await self.scaler.open()
        await wait_until_answered(self.topics.start, self._start_timeout, _log.warning)
        await wait_until_answered(self.registry.start, self._start_timeout, _log.warning)
        self.subscriptions.open()

    async def close(self) -> None:
        """Close. No effect if never opened."""
        await self.scaler.close()
        await self.subscriptions.close()
        await self.controller.close()
        await self.topics.close()
        await self.registry.close()

    async def prepare(self, store: Store) -> None:
        """Create missing streams. Raises Refused, Lost."""
        kinds: tuple[Kind, Kind] = ("lanes", "later")
        lanes = [LaneId(kind, partition) for kind in kinds for partition in range(self.config.partitions)]
        await store.prepare(lanes, self.config.max_queue_backlog or UNLIMITED)


def _is_loopback(endpoint: str) -> bool:
    """Whether the server is local, as for a demo or a test."""
    host = endpoint.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")
