"""The node: owns partitions, and moves their messages from feed to settle log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message import copies
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.queue.entry import Entry, MemoryBudget
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.core.wire.subjects import UnroutableSubject, queue_named
from evenlane.engine.node.counters import Counters
from evenlane.engine.node.dispatcher import Dispatcher
from evenlane.engine.node.eligibility.eligibility import Eligibility
from evenlane.engine.node.eligibility.pauses import TopicPauses
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
from evenlane.engine.node.handlers.invoke import HandlerInvoker
from evenlane.engine.node.handlers.worker_pool import WorkerPool
from evenlane.engine.node.partitions.due_release import DueReleaser
from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
from evenlane.engine.node.queues.payload_reader import PayloadReader
from evenlane.engine.node.queues.ready_queues import ReadyQueues
from evenlane.engine.node.queues.registry import QueueRegistry
from evenlane.engine.node.settle.completion import CompletionHandler
from evenlane.engine.node.settle.outcomes import FailureHandler
from evenlane.engine.node.settle.settler import Settler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)

_LEAST_FULL = 4_096  # ends that aren't durable: beyond it nothing starts where the store doesn't answer
_ASKED_S = 2.0  # for which a settle log that doesn't answer is waited for
_SHORT_PAUSE_S = 1.0  # for which payloads stay at hand


class Node:
    """`topic_of` tells the topic of a project, None if there is none, `draining_of` its groups that are only emptied;
    `push` handles messages of topics that are pushed, `fallback` takes what would become a dead letter. Times in
    seconds but where a name says ns. `on_stop(reason)` is called when the node can't go on by itself,
    `on_fenced(reason)` when a newer owner is found to have taken something over.
    """

    def __init__(
        self,
        store: Store,
        facts: ClusterConfig,
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
    ) -> None:
        self.store, self.facts, self.env, self.id = store, facts, env, node_id
        self.counters, self.limits = counters or Counters(), limits or MemoryBudget()
        self.times = times or LatencyStats(len(facts.priorities))
        self.scheduler: Scheduler[Queue] = scheduler or FairScheduler(concurrency, facts.max_group_qps)
        self._concurrency = concurrency
        self._on_stop = on_stop or (lambda _reason: None)
        self._on_fenced = on_fenced or self._on_stop
        self._bands = {name: band for band, name in enumerate(facts.priorities)}
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: asyncio.Task[Any] | None = None
        self._regaining: asyncio.Task[None] | None = None
        self._granted_until = 0  # by the lease; handlers start until then once the settle logs have been asked
        self._lapses = self._proven_lapses = 0  # times that the trust has lapsed, and after which the logs were asked
        self.hands = ReadyQueues(self.limits, self.scheduler)
        self.ends = CompletionHandler(self.counters, self.limits)
        self.dispatcher = Dispatcher(env, node_id, self.limits, self.counters, self.scheduler, self._wake)
        self.holdings = OwnedPartitions(
            store,
            self.limits,
            self._open_queue,
            self.hands.at_hand,
            self._delayed,
            self._bands,
            self._replaced,
            on_unreadable or (lambda _partition, _reason: None),
            self.counters,
        )
        self._later = DueReleaser(store, self.holdings.partitions, self.hands.came_due, self._look_at_clock)
        self.queues = QueueRegistry(
            facts, self.limits, self.scheduler, topic_of, draining_of, self.holdings.mine, self._wake
        )
        self.settler = Settler(
            store, settle_interval, self.holdings.verify, self.ends.missing, self._fenced,
            limited=facts.max_queue_backlog is not None, most=max(_LEAST_FULL, 4 * concurrency),
            purge_interval_s=purge_interval,
        )  # fmt: skip
        self.settler.on_lag_over, self.settler.trusted = self._wake, self._is_trusted
        self.outcomes = FailureHandler(
            store, env, self.counters, self.ends.copied, self._hold, self._wake, random.random, self._is_trusted
        )
        self.reader = PayloadReader(
            store, self.limits, self.holdings.lanes_of, self._subject_of, self.hands.at_hand, self.ends.unread,
            self.hands.reclaim,
        )  # fmt: skip
        self.turns = Eligibility(
            self.limits, self.hands.at_hand, self.settler.note, store.now, self._hold_ordered,
            lambda: self.gate.busy, lambda: self.gate.failing,
        )  # fmt: skip
        self.pauses = TopicPauses(self._pause)
        self.gate = InFlightGate(store, env, self._wake, self._records_changed, self.turns.no_more_recorded)
        if fallback is not None:
            self.outcomes.fallback = Fallback(fallback, self.gate)
        self._calls = HandlerInvoker(handler, push, concurrency)
        self.workers = WorkerPool(
            self._calls, concurrency, self.gate, self.scheduler, self.times, self.dispatcher.take, self.dispatcher.more,
            self.dispatcher.outlived, self.ends.handled, self.ends.failed, self._hung, self.ends.returned,
            self.ends.paused,
        )  # fmt: skip
        self._join()

    def _join(self) -> None:
        """Parts that need one another."""
        self.holdings.join(self.queues, self.settler, self.outcomes, self.workers, self.turns)
        self.hands.join(self.holdings, self.queues, self.reader, self.workers, self.turns)
        self.ends.join(self.hands, self.settler, self.outcomes, self.turns, self.pauses)
        self.dispatcher.join(self.hands, self.settler, self.outcomes, self.reader, self.turns, self._calls, self.ends)

    # ---- life

    async def start(self) -> None:
        self._look_at_clock()
        self._owner = asyncio.current_task()
        self._tasks += self._later.start()
        for task in [*self._tasks, self.settler.start(), *self.workers.start(self._is_ending, self._part_ended)]:
            task.add_done_callback(self._part_ended)

    def _is_ending(self) -> bool:
        """Whether its tasks may be cancelled: it stops, or all of the loop's tasks end with the one that runs it."""
        return self.dispatcher.stopped or (self._owner is not None and self._owner.cancelling() > 0)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails is a defect: better a node that ends and says so than one that stands still."""
        if task.cancelled() and self._is_ending():
            return
        error = asyncio.CancelledError("from within") if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a part of the node has failed", part=task.get_name(), exc_info=error)
            self.dispatcher.stopped = True
            self._on_stop(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def take_over(self, partitions: Iterable[int], epoch: int) -> None:
        """Own all these under one epoch: their messages come in when this returns. Raises Fenced."""
        await asyncio.gather(*(self.holdings.open(number, epoch) for number in partitions))

    async def stop(self, grace: float = 25.0, *, process_ends: bool = True) -> bool:
        """Drain: start nothing more, wait for what runs, settle. Ends within `grace` seconds; True if all that
        was begun has ended and is durably settled. `process_ends`: what has to be left running ends with the process,
        and has killed nothing; else the logs aren't told of a clean end.
        """
        self.dispatcher.stop()
        self.queues.shares.stop()
        self.turns.stop()
        self.pauses.stop()
        deadline = asyncio.get_running_loop().time() + grace
        tasks = [*self._tasks, *([self._regaining] if self._regaining else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stuck = await self.workers.drain(deadline - min(2.0, grace / 4))
        if stuck:
            _log.warning("handlers did not end in time: their messages will be handled again", count=len(stuck))
        put = await self.outcomes.drain(deadline - min(1.0, grace / 8))
        self.ends.stop()
        self.gate.close()
        await self.holdings.close()
        await self.reader.stop()
        if process_ends:
            self.holdings.end()
        clean = await self.settler.stop(deadline)
        if not clean:
            _log.warning("not all that was done could be settled: it will be handled again")
        return clean and put and not stuck

    @property
    def trusted_until(self) -> int:
        """Until when (monotonic ns) handlers may start."""
        return self._calls.trusted_until

    def trust(self, until: int) -> None:
        """The lease is trusted until then (ns of `now_ns`); work that had stopped for want of it goes on.

        A node that wasn't trusted for a while may have lost its partitions: an etcd that has gone back since can have
        its lease and its owner keys again. So its settle logs are asked before handlers start.
        """
        lapsed = 0 < self._granted_until <= now_ns()
        self._granted_until = until
        if until and lapsed and self.partitions:
            self._lapses += 1  # what was asked before says nothing any more
        if until and self._regaining is None and self._proven_lapses < self._lapses:
            self._regaining = asyncio.create_task(self._regain(), name="regain trust")
            self._regaining.add_done_callback(self._part_ended)
        if not until or self._regaining is None:
            self._calls.trusted_until = until
            self.workers.wake()

    async def _regain(self) -> None:
        """A log that doesn't answer within `_ASKED_S` no longer holds up the others. Another owner can have written to
        it only if etcd has gone back, too.
        """
        while self._proven_lapses < self._lapses:
            lapses = self._lapses
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASKED_S):
                    await self.settler.prove(self.holdings.lanes)
            self._proven_lapses = lapses
        self._regaining = None
        self._calls.trusted_until = self._granted_until
        self.workers.wake()

    def _is_trusted(self) -> bool:
        return now_ns() < self.trusted_until

    def _hung(self, threads: int) -> None:
        if threads > self._concurrency // 4:
            self._on_stop(
                f"{threads} of {self._concurrency} handler threads hang: give the handler time limits of its own"
            )

    def _fenced(self, lane: Lane, reason: str) -> None:
        if not self.dispatcher.stopped:  # else each lane of a lost lease would say so
            _log.warning("fenced: a newer owner settles", **lane_fields(lane), reason=reason)
        self._on_fenced(f"nothing more is settled of {lane.id.kind} {lane.id.partition}: {reason}")

    # ---- what it has

    @property
    def in_flight(self) -> list[Message]:
        """What is with a handler, or about to be."""
        return [*self.workers.running, *self.gate.messages]

    def handled_by(self, task: asyncio.Task[Any]) -> list[Message]:
        """The messages whose handler or fallback a task runs; empty if it runs none. For any thread."""
        return self.workers.handled_by(task) or self.outcomes.falling_back(task)

    def out(self, lane: Lane) -> set[int]:
        """What of a lane is with a handler, or about to be, or whose copy is on its way."""
        return {*self.workers.running_of(lane), *self.gate.of(lane), *self.outcomes.pending_of(lane)}

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """Those that are open, or being opened."""
        return self.holdings.partitions

    @property
    def backlog(self) -> int:
        """Messages known and waiting, on all partitions, delayed ones included."""
        return self.queues.backlog + sum(len(partition.later.delayed) for partition in self.partitions.values())

    # ---- topics

    def topic_changed(self, project: str, topic: Topic | None) -> None:
        """Act on a topic's new rules at once, for the backlog that is there, too (X4)."""
        self.queues.shares.configure(project)
        known = self.queues.of(project)
        if known and known[0].topic is not None and (topic is None or topic.push != known[0].topic.push):
            self.pauses.end(project)  # another endpoint
        for queue in self.queues.by_priority(project):
            self.queues.apply(queue, topic)
            self.hands.put_to_sleep_or_wake(queue)
        self.workers.wake()

    def _withhold(self, project: str, reason: str, on: bool, *, for_long: bool = True) -> None:
        """Hand out nothing of a project, or end that."""
        self.queues.withhold(project, reason, on, asleep=on and for_long)
        for queue in self.queues.by_priority(project):
            self.hands.put_to_sleep_or_wake(queue)
        self.workers.wake()

    def _pause(self, project: str, after_s: float) -> None:
        """0 s: the pause is over."""
        self._withhold(project, "endpoint", after_s > 0, for_long=after_s > _SHORT_PAUSE_S)

    def _hold(self, project: str, on: bool) -> None:
        """Its copies are refused: hand out no more of it meanwhile."""
        self._withhold(project, "paused", on)

    def _hold_ordered(self, project: str, on: bool) -> None:
        """Too many of its messages wait for their next attempts."""
        self._withhold(project, "ordered", on)

    # ---- queues

    def _open_queue(self, lane: FedLane, subject: bytes, entry: Entry | None) -> Queue | None:
        """The queue of a subject seen for the first time; a message that has none goes to the dead letters, if it is
        given.
        """
        try:
            project, group, band = queue_named(subject, lane.id.kind, self._bands)
        except UnroutableSubject as stray:
            if entry is not None:  # else only its subject was asked about
                self._bury_stray(lane, subject.decode("utf-8", "replace"), entry, str(stray))
            return None
        return self.queues.get(lane.id.partition, project, group, band)

    def _bury_stray(self, lane: FedLane, subject: str, entry: Entry, reason: str) -> None:
        self.ends.stray(lane, subject, reason)
        stream = names.stream(self.env, lane.id)
        _, sequence, at, headers, body, *_ = entry
        copy = copies.stray(subject, stream, sequence, at, headers, body, self.env, reason)
        self.outcomes.stray(lane, sequence, copy)

    def _subject_of(self, queue: Queue) -> str:
        return names.lane_subject(self.env, queue.partition, queue.project, queue.group, queue.priority)

    # ---- what its parts tell one another

    def _wake(self) -> None:
        self.workers.wake()

    def _delayed(self, queue: Queue | None) -> None:
        if queue is not None:
            self.queues.activity.note(queue)
        self._later.noted()

    def _records_changed(self) -> None:
        self.turns.records_changed()
        self.workers.wake()

    def _replaced(self, lane: FedLane, state: LaneState) -> None:
        for queue in self.ends.replaced(lane, state):
            self.queues.activity.note(queue)

    def _look_at_clock(self) -> None:
        self.dispatcher.clock_offset = self.times.offset = self.store.now() - now_ns()
        self.turns.forget_void()
