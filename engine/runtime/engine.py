"""A node as a process: connections, membership, topics, and the node that does the work."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from evenlane.engine.base import log_setup
from evenlane.engine.base.config.settings import CLUSTER_FACTS, Settings, load
from evenlane.engine.base.names import Kind, LaneId
from evenlane.engine.base.process_stats import ProcessStats
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
from evenlane.engine.cluster.ownership.membership import Membership
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.leader import build_leader
from evenlane.engine.control.templates.provisioner import TopicProvisioner
from evenlane.engine.core.ports import UNLIMITED
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.stats.latency import LatencyStats
from evenlane.engine.errors import EvenlaneError, NodeIdInUse, Unreachable
from evenlane.engine.http.lazily import Http
from evenlane.engine.node.counters import Counters
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.node.push.lazily import Pushers
from evenlane.engine.node.services.topic_provisioner import UnknownProjectWatcher
from evenlane.engine.node.settle.unreadable_logs import UnreadableLogs
from evenlane.engine.runtime.health import condition
from evenlane.engine.runtime.loop_watch.keeper import Keeper
from evenlane.engine.runtime.node_status import NodeStatus
from evenlane.engine.runtime.services import NodeServices
from evenlane.engine.runtime.session import Session
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.engine.runtime.supervision import Unsupervised
from evenlane.engine.telemetry.loop_lag import LoopLag
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.cluster.topics.lost_topics import LostTopics
    from evenlane.engine.control.leader.topic_controller import TopicController
    from evenlane.engine.core.ports import RequestBus
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.runtime.supervision import Supervision
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.quota.topics.topic import Accepted, Topic

_log = structlog.get_logger(__name__)
T = TypeVar("T")

_PAUSE_S = 1.0
_CORRUPTING = ("3.5.0", "3.5.1", "3.5.2")
_PLANNED_OUT_S = 2.0  # a leader has so long to give a leaving node's partitions to others, while it serves them


class Engine:
    """Runs a handler on the messages of an environment, beside other nodes. Topics with `push` are pushed instead; what
    would become a dead letter is given to `fallback`, if there is one.

    `async with Engine(handle, nats=..., etcd=...) as engine: await engine.run()`; what is left out comes from the
    settings. `on_ready(partitions, generation)` is called each time that it has carried out a plan; and when it has
    waited for one, or for others to release what it is to own, for 2 s. `supervision` is who ends its leases when its
    process is gone. For controls: without `shares` no leader moves
    unused shares between nodes; `scheduler(concurrency)` makes another one than the product's.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        *,
        fallback: Callable[[Any], Any] | None = None,
        settings: Settings | None = None,
        on_ready: Callable[[int, int], None] | None = None,
        connect: Connections | None = None,
        supervision: Supervision | None = None,
        shares: bool = True,
        scheduler: Callable[[int], Scheduler[Queue]] | None = None,
        **flags: Any,
    ) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        log_setup.to_stderr()
        self.settings = settings or load(given).settings
        self.id = self.settings.node_id()
        self._handler = Handler.of(handler)
        self._fallback = Handler.of(fallback) if fallback is not None else None
        self._pusher = Pushers(self.settings)
        self._on_ready = on_ready or (lambda _partitions, _generation: None)
        self._connect = connect or connections.Connections()
        self._supervision = supervision or Unsupervised()
        self._moves_shares, self._scheduler = shares, scheduler
        self._coordination = self._connect.etcd(self.settings)
        self.keeper = Keeper(self._connect, self.settings, self.id, self._coordination)
        self._vitals = ProcessStats()
        self._records = RecordReader(self.settings.env)
        self.troubles = Troubles()
        self._ownership, self._unreadable_logs = OwnershipDisagreement(self.troubles), UnreadableLogs(self.troubles)
        self._stop = asyncio.Event()
        self._broken = ""
        self._has_joined = False
        self.lease: NodeLease | None = None
        self._leases: list[int] = []  # of former terms, which may not have ended yet
        self._book: TopicCache | None = None
        self._acceptor: TopicController | None = None
        self._unknown: UnknownProjectWatcher | None = None
        self.facts: ClusterConfig | None = None
        self.node: Node | None = None
        self.membership: Membership | None = None
        self.http = Http(self, self._coordination)
        self.tenants: TenantRegistry | None = None
        self.times: LatencyStats | None = None
        self.counters, self.moves, self.loop_lag = Counters(), Counter[str](), LoopLag()
        self.standing: tuple[int, int] | None = None  # partitions and generation, as long as it serves or stands by
        self._beside: NodeServices | None = None

    async def __aenter__(self) -> Self:
        """Reach etcd and agree on the cluster's facts. Raises Unreachable, ConfigError."""
        try:
            with bound_contextvars(node=self.id):  # each line of the log says whose it is: of what begins here as well
                await self._enter()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _enter(self) -> None:
        settings = self.settings
        await self._pusher.check()
        self.loop_lag.open()
        self.keeper.watch(self.loop_lag, lambda: self.node, self._handler.name, self.troubles)
        await self.http.open()
        wanted = {name: getattr(settings, name) for name in CLUSTER_FACTS}
        with connections.translate_errors():
            version = await self._answered(self._coordination.status)
            if version in _CORRUPTING and not all(map(_is_loopback, settings.etcd)):
                _log.warning("this etcd may corrupt its data when it is killed: use 3.5.3 or newer", version=version)
            told = {name: value for name, value in wanted.items() if value is not None}
            self.facts = await self._answered(lambda: agree_cluster_config(self._coordination, settings.env, told))
            self.tenants = TenantRegistry(self.facts.priorities, settings.metrics_projects, self.facts.max_group_qps)
            self.times = LatencyStats(len(self.facts.priorities))
            self._book = TopicCache(self._coordination, settings.env)
            self._book.on_change.append(self._topic_changed)
            self._book.on_lost = self._topics_lost
            await self._answered(self._book.start)
            templates = TemplateCache(self._coordination, settings.env)
            making = TopicProvisioner(self._coordination, settings.env, self.facts, templates, via="a message")
            self._unknown = UnknownProjectWatcher(
                making, templates, lambda project: self.node.queues.of(project) if self.node is not None else ()
            )
            self._acceptor = build_leader(
                self.id, self._coordination, self._connect, settings, self.facts, self._book, self._records,
                lambda: self.lease.id if self.lease is not None else 0, shares=self._moves_shares,
            )  # fmt: skip

    async def __aexit__(self, *_: object) -> None:
        self.loop_lag.close()
        parts = (
            self.http, self._pusher, self._acceptor, self._unknown, self._book, self.keeper, self._coordination,
        )  # fmt: skip
        for part in parts:
            if part is not None:
                await part.close()

    async def _answered(self, probe: Callable[[], Awaitable[T]]) -> T:
        """What a server says; at the start it is waited for. Raises Unreachable."""
        patience = 0 if self._has_joined else self.settings.start_timeout
        return await wait_until_answered(probe, patience, _log.warning)

    async def prepare(self) -> None:
        """Make the streams, so that plain clients can put before any node or producer has run."""
        store = self._connect.store(self.settings, self.id)
        with connections.translate_errors():
            await store.open()
            try:
                await store.prepare(self._lanes(), self._queue_limit())
            finally:
                await store.close()

    def _lanes(self) -> list[LaneId]:
        assert self.facts is not None
        kinds: tuple[Kind, Kind] = ("lanes", "later")
        return [LaneId(kind, p) for kind in kinds for p in range(self.facts.partitions)]

    def _queue_limit(self) -> int:
        assert self.facts is not None
        return self.facts.max_queue_backlog or UNLIMITED

    def stop(self) -> None:
        """End `run` after a drain."""
        self._stop.set()

    async def run(self) -> bool:
        """Serve until `stop`; True if everything begun was ended and settled.

        A lost lease ends the term; the node then joins anew. Raises EvenlaneError for what it can't go on after.
        """
        with bound_contextvars(node=self.id):
            return await self._terms()

    async def _terms(self) -> bool:
        clean = True
        while True:
            try:
                clean = await self._term()
            except Unreachable as error:
                if not self._has_joined:
                    raise
                self._broken = str(error)
            if self._stop.is_set():
                return clean
            _log.warning("joining anew", reason=self._broken)
            await asyncio.sleep(_PAUSE_S)

    async def _term(self) -> bool:
        """From joining to the loss of the lease or to `stop`."""
        assert self.facts is not None
        settings = self.settings
        self._broken = ""
        term = Session(self)
        store = self._connect.store(settings, self.id, feeds=True)
        with connections.translate_errors():
            try:
                if not await self._unless_stopped(self._answered(store.open)):
                    return True
                await store.prepare(self._lanes(), self._queue_limit())
                node = Node(
                    store, self.facts, self._handler, self._topic, draining_of=self._draining,
                    env=settings.env, node_id=self.id,
                    concurrency=settings.concurrency, settle_interval=settings.settle_interval,
                    push=self._pusher.push, fallback=self._fallback,
                    scheduler=self._scheduler(settings.concurrency) if self._scheduler is not None else None,
                    counters=self.counters, times=self.times, on_stop=term.fail, on_fenced=term.lost,
                    on_unreadable=self._unreadable_logs.note,
                    limits=MemoryBudget(settings.payload_budget, settings.read_ahead, settings.index_limit),
                )  # fmt: skip
                assert self._book is not None
                assert self.tenants is not None
                self._beside = NodeServices(
                    self._connect, settings, node, self._book, self.tenants, self.troubles, self.condition,
                    self._supervision.lends,
                )  # fmt: skip
                try:
                    await self._beside.open()
                    clean = await self._serve(node, term)
                finally:
                    await self._beside.close()
            finally:
                await store.close()
        if term.fatal:
            raise EvenlaneError(f"node {self.id} stops: {term.fatal}")
        return clean

    async def _serve(self, node: Node, term: Session) -> bool:
        """Own partitions and work until the end of the term; whether all that was begun was ended and settled."""
        assert self.facts is not None
        assert self._acceptor is not None
        settings = self.settings
        report = NodeStatus(node, self._vitals, self._records, self.troubles, self._stop, self.http.address)
        lease = self.lease = self.keeper.lease(
            report.record, term.trust, term.lost, self._note_lease, self._ownership.differs
        )
        clean, left, in_order = True, True, False
        node.trust(0)
        self.node = node
        report.start()
        try:
            if not await self._unless_stopped(self._join(lease)):
                return True
            self._has_joined = True
            await self._acceptor.start()
            self.membership = membership = Membership(
                self._coordination, settings.env, self.id, lease, node.holdings,
                partitions=self.facts.partitions, records=self._records, moves=self.moves,
                ownership=self._ownership,
                on_plan=term.carried_out, on_lost=term.lost, on_fatal=term.fail,
            )  # fmt: skip
            node.trust(lease.trusted_until)
            await node.start()
            try:
                membership.start()
                await term.ended(self._stop)
                if not term.is_over:
                    _log.info("draining", grace=settings.drain_grace)
                    grace = _of_grace(settings.drain_grace)
                    left = await membership.leave(min(_PLANNED_OUT_S, grace / 4), grace)
                in_order = True
            finally:  # whatever happened, nothing of it goes on when the lease is given back
                await membership.end()
                node.trust(0)
                # Only a process that was asked to end has an end in order. Of any other one a message may be the cause.
                in_order = in_order and not term.fatal
                clean = await node.stop(2.0, process_ends=in_order and self._stop.is_set())
                if in_order:
                    await membership.let_go()
                _log.info("node stopped", clean=clean and left and in_order, **vars(node.counters))
        finally:
            self.node = self.membership = self.lease = self.standing = None
            if term.is_over or not (clean and left):  # not all its partitions were released, with what it has lent
                await node.queues.shares.repaid()
            await lease.end()
            if lease.id:
                self._leases.append(lease.id)
            report.stop()
        return clean and left

    async def _join(self, lease: NodeLease) -> None:
        """A former lease that couldn't be given back would keep its partitions, and our id, until it ends by itself."""
        try:
            while self._leases:
                await self._coordination.revoke(self._leases[-1])
                self._leases.pop()
                self._note_lease(0)
            if self._has_joined:  # an etcd that was wiped may have lost them
                assert self.facts is not None
                await agree_cluster_config(self._coordination, self.settings.env, _settings_record(self.facts))
            await self._answered(lease.join)
        except NodeIdInUse:
            raise
        except (CoordinationError, EvenlaneError) as error:
            if not self._has_joined:
                raise
            raise Unreachable(str(error)) from error  # whatever etcd refuses now, it may not in a moment

    def _note_lease(self, lease: int) -> None:
        """The present term's is this one; 0: it has none."""
        self._supervision.holds([*self._leases, *([lease] if lease else [])])

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether it was done to its end, before `stop` was called. Raises what it raises."""
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

    # ---- what its metrics and pages show (`NodeView`)

    def condition(self) -> Condition | None:
        """Of this moment; None between two terms, when there is neither a lease nor a node."""
        if self.node is None or self.membership is None or self.lease is None:
            return None
        return condition(
            self.node, self.membership, self.lease, leads=self.leads, slots=self.settings.concurrency,
            indexed=self.tenants.indexed if self.tenants is not None else 0, loop_lag_s=self.loop_lag.seconds,
        )  # fmt: skip

    @property
    def blocked_s(self) -> float:
        """For how long in all the event loop was blocked."""
        return self.keeper.blocked_s

    @property
    def line(self) -> RequestBus | None:
        """By which other nodes can be asked."""
        return self._beside.line if self._beside is not None else None

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def version(self) -> str:
        return self._vitals.version

    @property
    def leads(self) -> bool:
        return self._acceptor is not None and self._acceptor.leading.is_set()

    @property
    def refused(self) -> tuple[int, dict[str, int]]:
        """Topics refused now, as long as it leads; and by where they were found, all that were refused."""
        acceptor, book = self._acceptor, self._book
        ever = {"wish": acceptor.refused if acceptor else 0, "accepted": book.refused if book else 0}
        return len(acceptor.alarms) if acceptor else 0, ever

    # ---- what a term tells

    def ready(self, partitions: int, generation: int) -> None:
        self.standing = partitions, generation
        self._on_ready(partitions, generation)

    def broken(self, reason: str) -> None:
        """The term is over: nothing starts from now on."""
        self._broken = self._broken or reason
        if self.node is not None:
            self.node.trust(0)

    # ---- topics

    def _topic(self, project: str) -> Topic | None:
        found = self._book.get(project) if self._book is not None else None
        if found is None and self._unknown is not None:
            self._unknown.seen(project)
        return found.topic if found is not None else None

    def _draining(self, project: str) -> tuple[int, ...]:
        found = self._book.get(project) if self._book is not None else None
        return found.draining if found is not None else ()

    def _topics_lost(self, lost: LostTopics) -> None:
        """Etcd has gone back: what is known of these projects stays in force here, and no node that joins knows it."""
        if lost:
            self.troubles.begin("topics", lost.sentence)
        else:
            self.troubles.end("topics")

    def _topic_changed(self, project: str, accepted: Accepted | None) -> None:
        if accepted is None and self._unknown is not None:
            self._unknown.seen(project)
        if self.node is not None:
            self.node.topic_changed(project, accepted.topic if accepted is not None else None)


def _is_loopback(endpoint: str) -> bool:
    """As of servers for a demo or a test."""
    host = endpoint.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _settings_record(facts: ClusterConfig) -> dict[str, object]:
    """What the first process of an environment writes."""
    return {name: getattr(facts, name) for name in CLUSTER_FACTS}


def _of_grace(grace: float) -> float:
    """The node's part of the time a drain may take: releasing in etcd needs some, too."""
    return max(grace / 2, grace - 5.0)
