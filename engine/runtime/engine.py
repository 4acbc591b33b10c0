"""Engine: a node as a process, which joins the cluster, works for a session, and rejoins after losing its lease."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import structlog
from structlog.contextvars import bound_contextvars

from evenlane.engine._version import __version__
from evenlane.engine.base import log_setup
from evenlane.engine.base.build import describe_build
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.config.settings import load
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.subscriptions.registry import RegistryView
from evenlane.engine.errors import ConfigError, EvenlaneError, Unreachable
from evenlane.engine.http.lazy_server import LazyHttpServer
from evenlane.engine.node.handlers.application import application_of
from evenlane.engine.runtime.application_host import ApplicationHost
from evenlane.engine.runtime.process import ClusterParts, ProcessParts, read_cluster_config
from evenlane.engine.runtime.session import Session
from evenlane.engine.runtime.supervision import Unsupervised

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.handlers.application import Application, ApplicationFactory
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.runtime.supervision import Supervision
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry

_log = structlog.get_logger(__name__)

_PAUSE_S = 1.0


class Engine:
    """Runs a handler or an application (`Evenlane`) on the messages of an environment, together with other nodes.
    Topics with `push` are pushed instead. If `fallback` is given, it handles messages that would otherwise become dead
    letters; an application has its own.

    `async with Engine(handle, nats=..., etcd=...) as engine: await engine.run()`; omitted arguments come from the
    settings. `on_ready(partitions, generation)` is called once the node serves all partitions of its first plan, or is
    on standby as there are none for it, or none have come in time; and from then on each time it has carried out a
    plan. `supervision` ends the process's leases after its exit. `tracer_provider` takes the place of the process's
    provider of OpenTelemetry. For control experiments: without `shares` no leader lends quota between nodes;
    `scheduler(concurrency)` makes a scheduler other than the product's.

    Its properties are its state for metrics, pages and HTTP routes. Those that belong to a session are
    None between two sessions.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any] | ApplicationFactory,
        *,
        fallback: Callable[[Any], Any] | None = None,
        settings: Settings | None = None,
        on_ready: Callable[[int, int], None] | None = None,
        connect: Connections | None = None,
        supervision: Supervision | None = None,
        shares: bool = True,
        scheduler: Callable[[int], Scheduler[Queue]] | None = None,
        tracer_provider: object | None = None,
        **flags: Any,
    ) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        log_setup.to_stderr()
        application = application_of(handler, fallback)
        self._process = ProcessParts(
            _settings_for(application, settings or load(given).settings), application.routes, application.fallback,
            scheduler, connect or connections.Connections(), supervision or Unsupervised(), tracer_provider,
        )  # fmt: skip
        self._on_ready = on_ready or (lambda _partitions, _generation: None)
        self._moves_shares = shares
        self._stop = asyncio.Event()
        self._stopped_at: int | None = None  # monotonic ns
        self._host = ApplicationHost(application, self._process.settings, self._stop)
        self._cluster: ClusterParts | None = None  # set once etcd has answered
        self._session: Session | None = None  # the present or last one
        self.http = LazyHttpServer(self, self._process.coordination)

    async def __aenter__(self) -> Self:
        """Connect to etcd and agree on the cluster config. Raises Unreachable, ConfigError."""
        try:
            with bound_contextvars(**self._log_fields):  # for all log entries, also those of tasks started here
                await self._enter()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _enter(self) -> None:
        process = self._process
        await process.open(lambda: self.node)
        await self.http.open()
        with connections.translate_errors():
            config = await read_cluster_config(process)
            self._cluster = ClusterParts(process, config, self._lease, shares=self._moves_shares)
            await self._cluster.open()

    async def __aexit__(self, *_: object) -> None:
        for part in (self.http, self._process.pusher, self._cluster, self._process):
            if part is not None:
                await part.close()

    async def prepare(self) -> None:
        """Create the streams, so that plain clients can put before any node or producer has run."""
        assert self._cluster is not None
        store = self._process.connections.store(self.settings, self.id)
        with connections.translate_errors():
            try:
                await store.open()
                await self._cluster.prepare(store)
            finally:
                await store.close()

    def stop(self) -> None:
        """Make `run` drain and return."""
        if self._stopped_at is None:
            self._stopped_at = now_ns()
        self._stop.set()

    async def run(self) -> bool:
        """Serve until `stop`. Returns True if every started message was completed and settled.

        A lost lease ends the session, and the node rejoins. Raises EvenlaneError for a failure after which it can't
        continue, also of the application's lifespan.
        """
        with bound_contextvars(**self._log_fields):
            _log.info("node started", version=__version__, build=describe_build())
            try:
                clean = await self._run_sessions() if await self._host.begin() else True
            except BaseException:
                with contextlib.suppress(EvenlaneError):  # the first error counts
                    await self._host.end(self._stopped_at)
                raise
            await self._host.end(self._stopped_at)
            if self._host.failure:
                raise EvenlaneError(f"node {self.id} stops: {self._host.failure}")
            return clean

    async def _run_sessions(self) -> bool:
        assert self._cluster is not None
        clean, has_joined = True, False
        while True:
            session = self._session = Session(
                self._process, self._cluster, self._stop, self._on_ready,
                http_address=self.http.address, is_rejoin=has_joined,
            )  # fmt: skip
            try:
                clean = await session.run()
                reason = session.reason
            except Unreachable as error:
                if not session.has_joined and not has_joined:
                    raise
                reason = str(error)
            if self._stop.is_set():
                return clean
            has_joined = True
            _log.warning("joining anew", reason=reason)
            await asyncio.sleep(_PAUSE_S)

    # ---- state for metrics, pages and routes (`NodeView`)

    @property
    def settings(self) -> Settings:
        return self._process.settings

    @property
    def id(self) -> str:
        return self._process.id

    @property
    def version(self) -> str:
        return self._process.stats.version

    @property
    def node(self) -> Node | None:
        return self._session.node if self._session is not None else None

    @property
    def tenants(self) -> TenantRegistry | None:
        return self._cluster.tenants if self._cluster is not None else None

    @property
    def times(self) -> LatencyStats | None:
        return self._cluster.times if self._cluster is not None else None

    @property
    def counters(self) -> Counters:
        return self._process.counters

    @property
    def moves(self) -> Counter[str]:
        return self._process.moves

    @property
    def troubles(self) -> Troubles:
        return self._process.troubles

    @property
    def blocked_s(self) -> float:
        return self._process.keeper.blocked_s

    @property
    def standing(self) -> tuple[int, int] | None:
        return self._session.standing if self._session is not None else None

    @property
    def waiting(self) -> str:
        return self._session.waiting if self._session is not None else ""

    @property
    def desired_nodes(self) -> int | None:
        return self._cluster.scaler.desired if self._cluster is not None else None

    @property
    def subscriptions(self) -> tuple[RunningNodes, ...]:
        return self._cluster.subscriptions.current if self._cluster is not None else ()

    @property
    def registry(self) -> RegistryView:
        return self._cluster.registry.view if self._cluster is not None else RegistryView()

    @property
    def line(self) -> RequestBus | None:
        return self._session.bus if self._session is not None else None

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def refused(self) -> tuple[int, dict[str, int]]:
        if self._cluster is None:
            return 0, {"wish": 0, "accepted": 0}
        controller, cache = self._cluster.controller, self._cluster.topics.cache
        return len(controller.alarms), {"wish": controller.refused, "accepted": cache.refused}

    def condition(self) -> Condition | None:
        return self._session.condition() if self._session is not None else None

    @property
    def _log_fields(self) -> dict[str, str]:
        name = self.settings.subscription
        return {"node": self.id} if name is None else {"node": self.id, "subscription": name}

    def _lease(self) -> int:
        """Return the lease of the present session, 0 if there is none."""
        lease = self._session.lease if self._session is not None else None
        return lease.id if lease is not None else 0


def _settings_for(application: Application, settings: Settings) -> Settings:
    """Return the settings with the application's subscription. Raises ConfigError if they name another one."""
    own = application.subscription
    if own is None or own == settings.subscription:
        return settings
    if settings.subscription is not None:
        raise ConfigError(
            f"the application handles messages for subscription {own!r}, and the setting subscription is"
            f" {settings.subscription!r}: leave out one of them"
        )
    return replace(settings, subscription=own)
