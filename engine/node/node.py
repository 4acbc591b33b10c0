"""The node: owns partitions, and moves their messages from feed to settle log."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.node.counters import Counters
from evenlane.engine.node.dispatcher import Dispatcher
from evenlane.engine.node.eligibility.eligibility import Eligibility
from evenlane.engine.node.eligibility.pauses import TopicPauses
from evenlane.engine.node.handlers.attempt_reporter import AttemptReporter
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.handlers.invoke import HandlerInvoker
from evenlane.engine.node.handlers.worker import Workers
from evenlane.engine.node.handlers.worker_pool import WorkerPool
from evenlane.engine.node.partitions.due_release import DueReleaser
from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
from evenlane.engine.node.partitions.partition import PartitionContext
from evenlane.engine.node.partitions.queue_resolver import QueueResolver
from evenlane.engine.node.partitions.read_ahead import ReadAhead
from evenlane.engine.node.queues.owned_lanes import OwnedLanes
from evenlane.engine.node.queues.payload_memory import PayloadMemory
from evenlane.engine.node.queues.ready_queues import ReadyQueues
from evenlane.engine.node.queues.registry import QueueRegistry
from evenlane.engine.node.queues.withheld import WithheldProjects
from evenlane.engine.node.settle.completion import CompletionHandler
from evenlane.engine.node.settle.failure_log import FailureLog
from evenlane.engine.node.settle.outcomes import FailureHandler
from evenlane.engine.node.settle.settlement import MessageSettlement
from evenlane.engine.node.settle.settler import Settler
from evenlane.engine.node.settle.stream_verifier import StreamVerifier
from evenlane.engine.node.settle.truncator import StreamTruncator
from evenlane.engine.node.signals.dirty_lanes import DirtyLanes
from evenlane.engine.node.signals.lease_trust import LeaseTrust
from evenlane.engine.node.signals.store_clock import StoreClock
from evenlane.engine.node.signals.work_signal import WorkSignal
from evenlane.engine.node.trust_renewal import TrustRenewal
from evenlane.engine.node.tuning import DEFAULT, Tuning
from evenlane.engine.node.wait_rules import WaitRules
from evenlane.engine.node.work_source import WorkSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)

_LEAST_FULL = 4_096  # results that aren't durable; beyond this no message starts while the store doesn't answer


class Node:
    """Builds the parts of a node from the bottom up: each gets the parts below it. Events flow upwards through
    `NodeEvents`, which the node implements.

    `topic_of` returns the topic of a project, None if there is none; `draining_of` its groups that are being drained.
    `push` handles messages of topics with HTTP push, `fallback` messages that would otherwise be dead-lettered. Times
    are in seconds unless a name says ns.

    `on_stop(reason)` is called when the node can't continue by itself, `on_fenced(reason)` when a newer owner has taken
    over a partition, `on_unreadable(partition, reason)` when a settle log can't be read.
    """

    def __init__(
        self,
        store: Store,
        cluster_config: ClusterConfig,
        handler: Handler,
        topic_of: Callable[[str], Topic | None],
        *,
        draining_of: Callable[[str], Sequence[int]] = lambda _: (),
        env: str = "online",
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
        on_unreadable: Callable[[int, str], None] | None = None,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.store, self.cluster_config, self.env, self.id = store, cluster_config, env, node_id
        self.counters, self.limits = counters or Counters(), limits or MemoryBudget()
        self.times = times or LatencyStats(len(cluster_config.priorities))
        self.scheduler: Scheduler[Queue] = scheduler or FairScheduler(concurrency, cluster_config.max_group_qps)
        self._concurrency, self._tuning = concurrency, tuning
        self._on_stop = on_stop or (lambda _reason: None)
        self._on_fenced = on_fenced or self._on_stop
        self._on_unreadable = on_unreadable or (lambda _partition, _reason: None)
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: asyncio.Task[Any] | None = None
        self.signal, self.dirty, self.trusted = WorkSignal(), DirtyLanes(), LeaseTrust()
        self.clock = StoreClock(store, self.times)
        self._owned_numbers: set[int] = set()  # of partitions: written by `owned`, read by the quota shares
        self._failure_log = FailureLog()
        # Each step builds on the parts of those before it.
        self._build_handlers(handler, push)
        self._build_queues(topic_of, draining_of)
        self._build_eligibility()
        self._build_settle(fallback, settle_interval, purge_interval)
        self._build_partitions()
        self._build_dispatcher()

    # ---- parts, from the bottom up

    def _build_handlers(self, handler: Handler, push: Callable[[Message], Awaitable[None]] | None) -> None:
        self.gate = InFlightGate(self.store, self.env, self.signal, self)
        self.workers = Workers(self._concurrency)
        self._calls = HandlerInvoker(handler, push, self._concurrency, self.trusted)

    def _build_queues(
        self, topic_of: Callable[[str], Topic | None], draining_of: Callable[[str], Sequence[int]]
    ) -> None:
        self.lanes = OwnedLanes()
        self.queues = QueueRegistry(
            self.cluster_config, self.limits, self.scheduler, topic_of, draining_of,
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
            self.store, self.env, self.counters, self.settlement, self.withheld, self._failure_log,
            Fallback(fallback, self.gate) if fallback is not None else None, self.trusted, self.signal, random.random,
        )  # fmt: skip
        self._completion = CompletionHandler(
            self.counters, self.limits, self.dirty, self.ready, self.eligibility, self.pauses, self.settlement,
            self.failures, self._failure_log,
        )  # fmt: skip
        self.verifier = StreamVerifier(self.store, self.settlement, self)
        truncator = StreamTruncator(
            self.store, self.verifier, self.settlement, self.trusted, self,
            limited=self.cluster_config.max_queue_backlog is not None, purge_interval_s=purge_interval,
            pinned_for=self._tuning.pinned_for,
        )  # fmt: skip
        self.settler = Settler(
            self.store, settle_interval, self.dirty, self.verifier, truncator, self.signal, self,
            most=max(_LEAST_FULL, 4 * self._concurrency),
        )  # fmt: skip

    def _build_partitions(self) -> None:
        bands = {name: band for band, name in enumerate(self.cluster_config.priorities)}
        self._due = DueReleaser(self.store, self.lanes, self.ready, self.queues.activity)
        resolver = QueueResolver(self.env, bands, self.queues, self.ready, self.failures, self._failure_log)
        context = PartitionContext(
            self.store, self.limits, bands, resolver, self.ready, self.eligibility, self.verifier, self._due,
            SingleFlight(self.store.busy).read, ReadAhead(self.store), self._tuning,
        )  # fmt: skip
        self.owned = OwnedPartitions(
            context, self.lanes, self._owned_numbers, self.queues, self.dirty, self.settler, self.failures,
            self.workers, self.counters, self.clock, self._on_unreadable,
        )  # fmt: skip
        self._renewal = TrustRenewal(self.trusted, self.owned, self.settler, self.signal, self._part_ended)

    def _build_dispatcher(self) -> None:
        self.dispatcher = Dispatcher(
            self.env, self.id, self.limits, self.counters, self.scheduler, self.ready, self.eligibility,
            self.settlement, self.failures, self._failure_log, self.settler, self.trusted, self.clock, self.signal,
        )  # fmt: skip
        source = WorkSource(
            self.dispatcher, self.gate, self.workers, self._calls, self.scheduler, self._completion, self.trusted,
            self.signal,
        )  # fmt: skip
        reporter = AttemptReporter(self._completion, self.gate, self.scheduler, self.times)
        self.pool = WorkerPool(
            self.workers, source, self._calls, reporter, self.scheduler, self.times, self.trusted, self.signal,
            self._threads_hang,
        )  # fmt: skip

    # ---- life

    async def start(self) -> None:
        self.clock.measure()
        self._owner = asyncio.current_task()
        self._tasks += [
            asyncio.create_task(self._due.run(), name="due"),
            asyncio.create_task(self.owned.turn_hours(), name="hours"),
        ]
        for task in [*self._tasks, self.settler.start(), *self.pool.start(self._is_ending, self._part_ended)]:
            task.add_done_callback(self._part_ended)

    def _is_ending(self) -> bool:
        """Whether tasks may be cancelled: the node stops, or the task that runs it is being cancelled."""
        return self.dispatcher.stopped or (self._owner is not None and self._owner.cancelling() > 0)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """Stop the node if one of its parts has failed. That is a defect: better a node that ends and logs it than one
        that does nothing.
        """
        if task.cancelled() and self._is_ending():
            return
        error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a part of the node has failed", part=task.get_name(), exc_info=error)
            self.dispatcher.stopped = True
            self._on_stop(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def take_over(self, partitions: Iterable[int], epoch: int) -> None:
        """Own these partitions under one epoch. Their messages are delivered from when this returns. Raises Fenced."""
        await asyncio.gather(*(self.owned.open(number, epoch) for number in partitions))

    async def stop(self, grace: float = 25.0, *, process_ends: bool = True) -> bool:
        """Drain: start no more messages, wait for running handlers, settle. Ends within `grace` seconds.

        True if all messages that were started have ended and are durably settled. `process_ends` says that handlers
        left running end with the process and have killed nothing; otherwise no clean end is written to the logs.
        """
        self.dispatcher.stop()
        self.queues.shares.stop()
        self.eligibility.stop()
        self.pauses.stop()
        deadline = asyncio.get_running_loop().time() + grace
        proof = self._renewal.proof
        tasks = [*self._tasks, *([proof] if proof else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stuck = await self.pool.drain(deadline - min(2.0, grace / 4))
        if stuck:
            _log.warning("handlers did not end in time: their messages will be handled again", count=len(stuck))
        put = await self.failures.drain(deadline - min(1.0, grace / 8))
        self.settlement.stop()
        self.gate.close()
        await self.owned.close()
        await self.ready.reader.stop()
        if process_ends:
            self.owned.end()
        clean = await self.settler.stop(deadline)
        if not clean:
            _log.warning("not all that was done could be settled: it will be handled again")
        return clean and put and not stuck

    @property
    def trusted_until(self) -> int:
        """The time (monotonic ns) until which handlers may start."""
        return self.trusted.until

    def trust(self, until: int) -> None:
        """Trust the lease until then (ns of `now_ns`). If trust had lapsed, work resumes once the settle logs have
        shown that no other node has taken over meanwhile.
        """
        self._renewal.renew(until)

    def _threads_hang(self, threads: int) -> None:
        if threads > self._concurrency // 4:
            self._on_stop(
                f"{threads} of {self._concurrency} handler threads hang: give the handler time limits of its own"
            )

    # ---- state

    @property
    def in_flight(self) -> list[Message]:
        """The messages that a handler has, or is about to get."""
        return [*self.workers.running, *self.gate.messages]

    def handled_by(self, task: asyncio.Task[Any]) -> list[Message]:
        """The messages whose handler or fallback runs in a task; empty if it runs none. Thread-safe."""
        return self.workers.handled_by(task) or self.failures.falling_back(task)

    def out(self, lane: Lane) -> set[int]:
        """The lane's messages that a handler has, or is about to get, or whose copy isn't acknowledged yet."""
        return {*self.workers.running_of(lane), *self.gate.of(lane), *self.failures.pending_of(lane)}

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """The partitions that are open, or being opened."""
        return self.owned.partitions

    @property
    def backlog(self) -> int:
        """The number of waiting messages known, on all partitions, delayed ones included."""
        return self.queues.backlog + sum(len(partition.later.delayed) for partition in self.partitions.values())

    def topic_changed(self, project: str, topic: Topic | None) -> None:
        """Apply a topic's new rules at once, to the existing backlog, too (X4)."""
        self.queues.shares.configure(project)
        known = self.queues.of(project)
        if known and known[0].topic is not None and (topic is None or topic.push != known[0].topic.push):
            self.pauses.end(project)  # the pause was for the old endpoint
        for queue in self.queues.by_priority(project):
            self.queues.apply(queue, topic)
        self.withheld.rules_changed(project)

    # ---- NodeEvents

    def message_missing(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        self.settlement.unread(queue, lane, sequence, generation)

    def records_changed(self) -> None:
        self.eligibility.records_changed()
        self.signal.notify()

    def records_idle(self) -> None:
        self.eligibility.no_more_recorded()

    def stream_replaced(self, lane: FedLane) -> None:
        self.owned.feed_again(lane)

    def fenced(self, lane: Lane, reason: str) -> None:
        if not self.dispatcher.stopped:  # or each lane of a lost lease would log it
            _log.warning("fenced: a newer owner settles", **lane_fields(lane), reason=reason)
        self._on_fenced(f"nothing more is settled of {lane.id.kind} {lane.id.partition}: {reason}")
