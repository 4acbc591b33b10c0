"""Services of a node next to its work, on connections separate from its store's: queries, counts, metering, lending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.admin.history.responder import HistoryResponder
from evenlane.engine.admin.overview.responder import OverviewResponder
from evenlane.engine.admin.why.responder import WhyResponder
from evenlane.engine.node.services.backlog_reporter import BacklogReporter
from evenlane.engine.node.services.group_responder import GroupResponder
from evenlane.engine.node.services.quota_borrower import QuotaBorrower
from evenlane.engine.node.services.store_watch import StoreWatch
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.sampler import QueueSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry


class NodeServices:
    """The services of one session: call `open` when the node exists, `close` before its store is closed. `line` is the
    connection for requests to other nodes, None while closed. `troubles` receives streams that can't be written.
    `condition` returns the node's condition, None between two sessions. `on_lent` is called with the projects of which
    the node lends quota and until when (ns), before any other node may use it.
    """

    def __init__(
        self,
        connect: Connections,
        settings: Settings,
        node: Node,
        topic_cache: TopicCache,
        tenants: TenantRegistry,
        troubles: Troubles,
        condition: Callable[[], Condition | None] = lambda: None,
        on_lent: Callable[[Mapping[str, int]], None] = lambda _lent: None,
    ) -> None:
        cluster = settings.cluster
        self.line: RequestBus | None = None
        self._questions = connect.questions(settings, f"{node.id} answers")
        self._why_responder = WhyResponder(self._questions, cluster, node, tenants, lost=topic_cache.find_lost)
        self._group_responder = GroupResponder(self._questions, cluster, node)
        self._overview_responder = OverviewResponder(
            self._questions, cluster, node, tenants, topic_cache.get, condition
        )
        self._history_responder = HistoryResponder(self._questions, cluster, node, tenants, topic_cache.get)
        self._quota_borrower = QuotaBorrower(self._questions, cluster, node, topic_cache.on_change, on_lent)
        self._backlog_reporter = BacklogReporter(
            connect.questions(settings, f"{node.id} counts"), cluster, node, topic_cache
        )
        self._store_watch = StoreWatch(node.store, cluster, troubles, lambda: node.owned.mine)
        self._sampler = QueueSampler(node, tenants)
        self._meter_publisher = MeterPublisher(node, tenants, settings.meter_interval, settings.concurrency)

    async def open(self) -> None:
        """Open all services. Raises Unreachable."""
        await self._why_responder.open()
        self._group_responder.listen()
        self._overview_responder.listen()
        self._history_responder.listen()
        self._quota_borrower.open()
        self.line = self._questions
        await self._backlog_reporter.open()
        self._store_watch.open()
        self._sampler.open()
        self._meter_publisher.open()

    async def close(self) -> None:
        """Close. No effect on services that were never opened."""
        self.line = None
        parts = (
            self._sampler, self._meter_publisher, self._store_watch, self._backlog_reporter, self._quota_borrower,
            self._group_responder, self._overview_responder, self._history_responder, self._why_responder,
        )  # fmt: skip
        for part in parts:
            await part.close()
