"""The parts of a node, and how they are put together."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES, SubscriptionFilter
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.node.dispatch.batch_collector import BatchCollector
from evenlane.engine.node.dispatch.dispatcher import Dispatcher
from evenlane.engine.node.dispatch.work_source import WorkSource
from evenlane.engine.node.eligibility.eligibility import Eligibility
from evenlane.engine.node.eligibility.pauses import TopicPauses
from evenlane.engine.node.handlers.attempt_reporter import AttemptReporter
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.handlers.invoke import HandlerInvoker
from evenlane.engine.node.handlers.worker import Workers
from evenlane.engine.node.handlers.worker_pool import WorkerPool
from evenlane.engine.node.partitions.due_release import DueReleaser
from evenlane.engine.node.partitions.gap_reader import GapReader
from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
from evenlane.engine.node.partitions.partition import PartitionContext
from evenlane.engine.node.partitions.queue_resolver import QueueResolver
from evenlane.engine.node.partitions.read_ahead import ReadAhead
from evenlane.engine.node.partitions.registry_adoption import RegistryAdoption
from evenlane.engine.node.queues.owned_lanes import OwnedLanes
from evenlane.engine.node.queues.payload_memory import PayloadMemory
from evenlane.engine.node.queues.ready_queues import ReadyQueues
from evenlane.engine.node.queues.registry import QueueRegistry
from evenlane.engine.node.queues.withheld import WithheldProjects
from evenlane.engine.node.settle.completion import CompletionHandler
from evenlane.engine.node.settle.failure_log import FailureLog
from evenlane.engine.node.settle.outcomes import FailureHandler
from evenlane.engine.node.settle.removal_bound import RemovalBound
from evenlane.engine.node.settle.settlement import MessageSettlement
from evenlane.engine.node.settle.settler import Settler
from evenlane.engine.node.settle.stream_verifier import StreamVerifier
from evenlane.engine.node.settle.truncator import StreamTruncator
from evenlane.engine.node.signals.counters import Counters
from evenlane.engine.node.signals.dirty_lanes import DirtyLanes
from evenlane.engine.node.signals.events import NodeEvents
from evenlane.engine.node.signals.lease_trust import LeaseTrust
from evenlane.engine.node.signals.store_clock import StoreClock
from evenlane.engine.node.signals.work_signal import WorkSignal
from evenlane.engine.node.trust_renewal import TrustRenewal
from evenlane.engine.node.tuning import DEFAULT, NodeTuning
from evenlane.engine.node.wait_rules import WaitRules

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.handlers.routes import RouteTable
    from evenlane.engine.tracing.attempt_tracer import AttemptTracer
    from evenlane.quota.topics.topic import Topic


_LEAST_FULL = 4_096  # results that aren't durable; beyond this no message starts while the store doesn't answer


class NodeParts(NodeEvents, ABC):
    """Builds the parts of a node from the bottom up, in six steps: each part gets the parts below it. Events flow
    upwards through `NodeEvents`, which `Node` implements.

    `cluster` is the name of the cluster that the node belongs to. `routes` has the handlers. `topic_of` returns the
    topic of a project, None if there is none; `draining_of` its groups that are being drained. `push` handles messages
    of topics with HTTP push, `fallback` messages that would otherwise be dead-lettered. Times are in seconds unless a
    name says ns.

    `on_stop(reason)` is called when the node can't continue by itself, `on_fenced(reason)` when a newer owner has taken
    over a partition, `unreadable` is informed of settle logs that can't be read. `error_texts`: the log has the
    text of a handler's exception. `tracer` makes a span for each attempt. `chosen`: the messages of the shared
    streams that are for a named subscription.
    """

    def __init__(
        self,
        store: Store,
        cluster_config: ClusterConfig,
        routes: RouteTable,
        topic_of: Callable[[str], Topic | None],
        *,
        draining_of: Callable[[str], Sequence[int]] = lambda _: (),
        cluster: str = "online",
        node_id: str = "node",
        concurrency: int = 64,
        limits: MemoryBudget | None = None,
        settle_interval: float = 0.1,
        purge_interval: float = 1.0,
        scheduler: Scheduler[Queue] | None = None,
        push: Callable[[Message], Awaitable[None]] | None = None,
        fallback: Handler | None = None,
        counters: Counters | None = None,
        times: LatencyStats | None = None,
        on_stop: Callable[[str], None] | None = None,
        on_fenced: Callable[[str], None] | None = None,
        unreadable: UnreadableRecords | None = None,
        error_texts: bool = True,
        tracer: AttemptTracer | None = None,
        tuning: NodeTuning = DEFAULT,
        chosen: SubscriptionFilter = ALL_MESSAGES,
    ) -> None:
        self.store, self.cluster_config, self.cluster, self.id = store, cluster_config, cluster, node_id
        self.env = names.env_of(cluster)
        self.counters, self.limits = counters or Counters(), limits or MemoryBudget()
        self.times = times or LatencyStats(len(cluster_config.priorities))
        self.scheduler: Scheduler[Queue] = scheduler or FairScheduler(concurrency, cluster_config.max_group_qps)
        self._concurrency, self._tuning, self._chosen = concurrency, tuning, chosen
        self._on_stop = on_stop or (lambda _reason: None)
        self._on_fenced = on_fenced or self._on_stop
        self._unreadable = unreadable or UnreadableRecords(Troubles())
        self.signal, self.dirty, self.trusted = WorkSignal(), DirtyLanes(), LeaseTrust()
        self.clock = StoreClock(store, self.times)
        self.bound = RemovalBound(store, cluster, cluster_config.partitions)
        self._owned_numbers: set[int] = set()  # of partitions: written by `owned`, read by the quota shares
        self._failure_log = FailureLog(
            error_texts=error_texts, on_dead=tracer.on_dead_letter if tracer is not None else None
        )
        if tracer is not None:
            routes, push, fallback = _trace(tracer, routes, push, fallback)
        self._build_handlers(push)
        self._build_queues(routes, topic_of, draining_of)
        self._build_eligibility()
        self._build_settle(fallback, settle_interval, purge_interval)
        self._build_partitions()
        self._build_dispatcher()

    def _build_handlers(self, push: Callable[[Message], Awaitable[None]] | None) -> None:
        self.gate = InFlightGate(self.store, self.env, self.signal, self)
        self.workers = Workers(self._concurrency)
        self._calls = HandlerInvoker(push, self._concurrency, self.trusted)

    def _build_queues(
        self,
        routes: RouteTable,
        topic_of: Callable[[str], Topic | None],
        draining_of: Callable[[str], Sequence[int]],
    ) -> None:
        self._has_batches = routes.has_batches
        self.lanes = OwnedLanes()
        self.queues = QueueRegistry(
            self.cluster_config, self.limits, self.scheduler, routes.find, topic_of, draining_of,
            self._owned_numbers, self.signal.notify, self._tuning,
        )  # fmt: skip
        self.ready = ReadyQueues(
            self.store, self.env, PayloadMemory(self.limits, self.scheduler), self.lanes, self.queues.activity,
            self.scheduler, self.signal, self,
        )  # fmt: skip
        self.withheld = WithheldProjects(self.queues, self.ready, self.signal)

    def _build_eligibility(self) -> None:
        self.eligibility = Eligibility(self.limits, self.ready, self.withheld, self.gate, self.dirty, self.store.now)
        self.pauses = TopicPauses(self.withheld)
        self.wait_rules = WaitRules(self.queues, self.trusted, self.lanes, self.scheduler)

    def _build_settle(self, fallback: Handler | None, settle_interval: float, purge_interval: float) -> None:
        self.settlement = MessageSettlement(
            self.counters, self.dirty, self.eligibility, self.queues.activity, self._failure_log
        )
        self.failures = FailureHandler(
            self.store, self.cluster, self.counters, self.settlement, self.withheld, self._failure_log,
            Fallback(fallback, self.gate) if fallback is not None else None, self.trusted, self.signal, random.random,
        )  # fmt: skip
        self._completion = CompletionHandler(
            self.counters, self.limits, self.dirty, self.ready, self.eligibility, self.pauses, self.settlement,
            self.failures, self._failure_log,
        )  # fmt: skip
        self.verifier = StreamVerifier(self.store, self.settlement, self)
        truncator = StreamTruncator(
            self.store, self.verifier, self.settlement, self.trusted, self, self.bound,
            limited=self.cluster_config.max_queue_backlog is not None, purge_interval_s=purge_interval,
            pinned_for=self._tuning.pinned_for,
        )  # fmt: skip
        self.settler = Settler(
            self.store, settle_interval, self.dirty, self.verifier, truncator, self.bound, self.signal, self,
            most=max(_LEAST_FULL, 4 * self._concurrency),
        )  # fmt: skip

    def _build_partitions(self) -> None:
        bands = {name: band for band, name in enumerate(self.cluster_config.priorities)}
        self._due = DueReleaser(self.store, self.lanes, self.ready, self.queues.activity)
        resolver = QueueResolver(
            self.cluster, bands, self.queues, self.ready, self.failures, self._failure_log, self.settlement,
            self._chosen,
        )  # fmt: skip
        context = PartitionContext(
            self.store, names.lane_kinds(self.cluster), self.limits, bands, resolver, self.ready, self.eligibility,
            self.verifier, self.settler, self._due, SingleFlight(self.store.busy).read, ReadAhead(self.store),
            GapReader(self.store), self.bound, self._tuning,
        )  # fmt: skip
        self.owned = OwnedPartitions(
            context, self.lanes, self._owned_numbers, self.queues, self.dirty, self.failures, self.workers,
            self.counters, self.clock, self._unreadable,
        )  # fmt: skip
        self.registry = RegistryAdoption(self.bound, self.owned, self.settler, resolver, self.cluster)
        self._renewal = TrustRenewal(self.trusted, self.owned, self.settler, self.signal, self._on_part_end)

    def _build_dispatcher(self) -> None:
        collector = BatchCollector(self.ready, self.scheduler)
        self.queues.on_gone.append(collector.discard)
        self.dispatcher = Dispatcher(
            self.cluster, self.id, self.limits, self.counters, self.scheduler, self.ready, self.eligibility,
            self.settlement, self.failures, self._failure_log, self.settler, self.trusted, self.clock, self.signal,
            collector,
        )  # fmt: skip
        source = WorkSource(
            self.dispatcher, self.gate, self.workers, self._calls, self.scheduler, self._completion, self.trusted,
            self.signal, is_batched=self._has_batches,
        )  # fmt: skip
        reporter = AttemptReporter(self._completion, self.gate, self.scheduler, self.times)
        self.pool = WorkerPool(
            self.workers, source, self._calls, reporter, self.scheduler, self.times, self.trusted, self.signal,
            self._is_ending, self._on_part_end, self._on_hung_threads,
        )  # fmt: skip

    @abstractmethod
    def _is_ending(self) -> bool:
        """Whether tasks may be cancelled: the node stops, or the task that runs it is being cancelled."""

    @abstractmethod
    def _on_part_end(self, task: asyncio.Task[None]) -> None:
        """Called when a task of a part has ended."""

    @abstractmethod
    def _on_hung_threads(self, threads: int) -> None:
        """Called with the number of handler threads that hang, whenever it has grown."""


def _trace(
    tracer: AttemptTracer,
    routes: RouteTable,
    push: Callable[[Message], Awaitable[None]] | None,
    fallback: Handler | None,
) -> tuple[RouteTable, Callable[[Message], Awaitable[None]] | None, Handler | None]:
    """The same handlers, each in spans."""
    return (
        routes.traced(tracer.trace_handler),
        tracer.trace_handler(push, is_async=True, batch=None) if push is not None else None,
        fallback.traced(tracer.trace_handler) if fallback is not None else None,
    )
