"""Producer: publishes messages, independently of consumers (P8). Needs NATS and etcd, but no node."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

from evenlane.engine.base import log_setup
from evenlane.engine.base.config.overrides import override
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import ClusterConfig, agree_cluster_config
from evenlane.engine.cluster.topics.template_cache import TemplateCache
from evenlane.engine.cluster.topics.topic_cache import start_topics
from evenlane.engine.control.templates.provisioner import TopicProvisioner
from evenlane.engine.core.ports import UNLIMITED
from evenlane.engine.errors import ConfigError, ProducerClosed
from evenlane.engine.producer.auto_create import TopicAutoCreate
from evenlane.engine.producer.backlog_limit import BacklogLimiter
from evenlane.engine.producer.no_reply import ReplyTimeouts
from evenlane.engine.producer.pipeline.batch_put import BatchPut, OutcomeList
from evenlane.engine.producer.pipeline.pipeline import PutPipeline
from evenlane.engine.producer.pipeline.router import Router
from evenlane.engine.producer.pipeline.sender import CLOSED, NOT_OPEN, Sender
from evenlane.engine.producer.pipeline.window import PutWindow
from evenlane.engine.producer.put import Put, check_done, check_iterable
from evenlane.engine.producer.rate_limit import RateLimiter, check_admission
from evenlane.engine.producer.tuning import DEFAULT
from evenlane.engine.tracing.switch import find_tracer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.ports import ClusterLayout, Receipt, Store
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.producer.pipeline.router import Topics
    from evenlane.engine.producer.put import Outcome
    from evenlane.engine.producer.put_tracer import PutTracer

WINDOW_MESSAGES = 4_096
WINDOW_BYTES = 16 << 20


class Producer:
    """Publishes messages: `async with Producer() as p: await p.put("acme", b"...", priority="high")`.

    Omitted arguments come from the settings. `timeout` (s) bounds all tries of a message together; by default it is the
    store's duplicate window. At most `window_messages` and `window_bytes` wait for their acknowledgement; further puts
    wait for room. `store` is the setting or an open store. An open store, `topics` and `facts` are used if given, and
    not closed. Without `duplicate_protection` no id is sent, and a message that had to be resent may be stored twice.
    With `admission`, the producer limits puts for each topic to `admission` x its qps; the wait is part of `timeout`.
    `counts` is the connection for nodes' backlog reports; by default the producer opens its own, unless `store` is an
    open store. `tracer_provider` takes the place of the process's provider of OpenTelemetry.
    """

    def __init__(
        self,
        nats: str | Sequence[str] | None = None,
        etcd: str | Sequence[str] | None = None,
        env: str | None = None,
        *,
        settings: Settings | None = None,
        store: Store | str | None = None,
        topics: Topics | None = None,
        facts: ClusterLayout | None = None,
        duplicate_protection: bool = True,
        timeout: float | None = None,
        admission: float | None = None,
        counts: RequestBus | None = None,
        window_messages: int = WINDOW_MESSAGES,
        window_bytes: int = WINDOW_BYTES,
        tracer_provider: object | None = None,
    ) -> None:
        log_setup.to_stderr()
        named = store if isinstance(store, str) else None
        given = override(settings, {"nats": nats, "store": named, "etcd": etcd, "env": env})
        self._settings = replace(given, subscription=None)  # puts are for all subscriptions
        self._store = None if isinstance(store, str) else store
        if self._store is None:
            connections.load_store(self._settings)
        self._topics, self._cluster_config = topics, facts
        self._protected = bool(duplicate_protection)
        self._timeout_s = self._settings.duplicate_window if timeout is None else _check("timeout", timeout)
        self._factor, self._counts = check_admission(admission), counts
        self._window_size = (
            int(_check("window_messages", window_messages, 1)), int(_check("window_bytes", window_bytes, 1)),
        )  # fmt: skip
        self.tuning = DEFAULT  # read by `open`
        self.may_fork = False  # read by `open`: whether the process may fork while the producer is open
        self._open = AsyncExitStack()
        self._open_store: Store | None = None
        self._pipeline: PutPipeline | None = None
        self._was_open = False
        self._deliver: Callable[[Put], Awaitable[Receipt]] = self._deliver_if_open
        self._tracer_provider = tracer_provider
        self._tracer: PutTracer | None = None  # decided by `open`
        self._auto_create: TopicAutoCreate | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and create missing streams. Raises Unreachable, ConfigError."""
        tracer = find_tracer(self._settings.traces, self._tracer_provider)
        async with AsyncExitStack() as opened:
            store, topics, cluster_config = await self._connect(opened)
            lanes = _list_lanes(cluster_config)

            async def restore() -> None:
                if self._settings.projects is None:
                    await store.prepare(lanes, cluster_config.max_queue_backlog or UNLIMITED)

            replies = ReplyTimeouts(store)
            opened.push_async_callback(replies.close)
            sender = Sender(
                store,
                PutWindow(*self._window_size, self._timeout_s, replies),
                replies,
                timeout_s=self._timeout_s,
                window_s=self._settings.duplicate_window,
                restore=restore,
                answer_s=self.tuning.answer_s,
            )
            sender.open()
            opened.push_async_callback(sender.close)
            backlog = BacklogLimiter(
                self._settings.env, store, cluster_config, self._connect_counts(), self.tuning,
                asks_nodes=self._settings.projects is not None,
            )  # fmt: skip
            opened.push_async_callback(backlog.close)
            rate = None
            if self._factor is not None:
                rate = RateLimiter(self._factor, topics.get, sender, self._timeout_s, self.tuning)
                opened.push_async_callback(rate.close)
            router = Router(
                self._settings.env, topics, cluster_config, store,
                duplicate_protection=self._protected, projects=self._settings.projects,
            )  # fmt: skip
            self._pipeline = PutPipeline(router, backlog, rate, sender, self._timeout_s, self._auto_create)
            self._open_store = store
            self._deliver = self._pipeline.deliver
            if tracer is not None:
                self._trace(tracer, self._deliver)
            self._open, self._was_open = opened.pop_all(), True

    async def close(self) -> None:
        """Close. Puts that still wait for their acknowledgement fail. May be called twice."""
        self._pipeline, self._deliver = None, self._deliver_if_open
        await self._open.aclose()

    def _trace(self, tracer: Any, deliver: Callable[[Put], Awaitable[Receipt]]) -> None:
        """Give each put a span from now on."""
        from evenlane.engine.producer.put_tracer import PutTracer  # noqa: PLC0415 - it needs OpenTelemetry

        made = self._tracer = PutTracer(tracer)
        self._deliver = lambda put: made.deliver(put, deliver)

    def _connect_counts(self) -> Callable[[], RequestBus] | None:
        if self._counts is not None:
            given = self._counts
            return lambda: given
        if self._store is not None:
            return None
        return lambda: connections.bus(self._settings, "evenlane producer counts")

    async def _connect(self, opened: AsyncExitStack) -> tuple[Store, Topics, ClusterLayout]:
        store, topics, cluster_config = self._store, self._topics, self._cluster_config
        with connections.translate_errors():
            if topics is None or cluster_config is None:
                etcd = connections.etcd(self._settings, may_fork=self.may_fork)
                opened.push_async_callback(etcd.close)
                if cluster_config is None:
                    cluster_config = await agree_cluster_config(
                        etcd, self._settings.env, connections.config_known_so_far(self._settings)
                    )
                if topics is None:
                    topics = await start_topics(etcd, self._settings)
                    opened.push_async_callback(topics.close)
                    if isinstance(cluster_config, ClusterConfig) and self._settings.projects is None:
                        templates = TemplateCache(etcd, self._settings.env)
                        opened.push_async_callback(templates.close)
                        provisioner = TopicProvisioner(etcd, self._settings.env, cluster_config, templates, via="a put")
                        self._auto_create = TopicAutoCreate(
                            etcd, self._settings.env, provisioner, topics, again_s=self.tuning.create_again_s
                        )
            if store is None:
                own = connections.store(self._settings, "evenlane producer")
                await own.open()
                opened.push_async_callback(own.close)
                store = own
            if self._settings.projects is None:
                await store.prepare(_list_lanes(cluster_config), cluster_config.max_queue_backlog or UNLIMITED)
        return store, topics, cluster_config

    async def put(
        self,
        project: str,
        body: Any,
        *,
        priority: str | None = None,
        key: str | None = None,
        group: int | None = None,
        delay: float | None = None,
        due: int | datetime | None = None,
        ttl: float | None = None,
        id: str | None = None,  # noqa: A002 - the name in the public surface
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Put one message; return once the store has persisted it. The arguments are those of `Put`.

        Raises InvalidName, InvalidPut, UnknownProject, TopicDraining, PayloadTooLarge, or TypeError for a body of text
        (nothing was sent); BacklogFull, PutRefused (not stored); NotAcknowledged (the text says whether it may be
        stored).
        """
        put = Put(project, body, priority, key, group, delay, due, ttl, id, headers)
        return await self._deliver(put)

    async def put_many(self, puts: Iterable[Put] | AsyncIterable[Put]) -> list[Outcome]:
        """Put all messages concurrently. Returns in order, for each put, its Receipt or the error that
        `put` would raise.
        """
        outcomes = OutcomeList()
        await self.put_each(puts, outcomes.add)
        return outcomes.in_order()

    async def put_each(self, puts: Iterable[Put] | AsyncIterable[Put], done: Callable[[int, Outcome], None]) -> None:
        """Put all messages in bounded memory. `done` is called with each put's number, from 0, and outcome, in any
        order.

        Returns when all puts have their outcome. If it is cancelled, or `puts` or `done` raises, puts in flight are
        abandoned: they may or may not be stored. It raises what `done` raised, at the latest with the next put.
        """
        check_iterable(puts)
        check_done(done)
        if self._tracer is None:
            await self._put_each(puts, done)
            return
        with self._tracer.batch(done) as traced:
            await self._put_each(traced.trace(puts), traced.done)

    async def _put_each(self, puts: Iterable[Put] | AsyncIterable[Put], done: Callable[[int, Outcome], None]) -> None:
        batch = BatchPut(self._get_pipeline(), done)
        try:
            if isinstance(puts, AsyncIterable):
                async for put in puts:
                    if not batch.add(put):
                        await batch.ready()
            else:
                for put in puts:
                    if not batch.add(put):
                        await batch.ready()
            await batch.end()
        finally:
            batch.give_up()

    def home_partition(self, project: str) -> int:
        """Return the partition of a project's first group: `sha256(project) mod P`. The project needs no topic.

        Raises InvalidName, ProducerClosed.
        """
        return self._get_pipeline().home_partition(project)

    @property
    def max_payload(self) -> int:
        """Bytes that the server takes for one message, body and headers together. Raises ProducerClosed."""
        if self._pipeline is None or self._open_store is None:
            raise ProducerClosed(CLOSED)
        return self._open_store.max_payload

    async def _deliver_if_open(self, put: Put) -> Receipt:
        """Raise ProducerClosed: an open producer delivers by its pipeline, without this call in between."""
        return await self._get_pipeline().deliver(put)

    def _get_pipeline(self) -> PutPipeline:
        if self._pipeline is None:
            raise ProducerClosed(CLOSED if self._was_open else NOT_OPEN)
        return self._pipeline


def _check(name: str, value: float, least: float = 0.0) -> float:
    """Return a valid number. Raises ConfigError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isfinite(value) and value > 0 and value >= least:
        return float(value)
    raise ConfigError(f"{name} {value!r} is not a number {f'from {least:g}' if least else 'above 0'}")


def _list_lanes(cluster_config: ClusterLayout) -> list[LaneId]:
    return [LaneId(kind, number) for number in range(cluster_config.partitions) for kind in ("lanes", "later")]
