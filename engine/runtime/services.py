"""What a node does beside its work, on connections that aren't its store's: it answers, counts, measures, and lends."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from evenlane.engine.core.ports import RequestBus
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry


class NodeServices:
    """Of one term: `open` when the node exists, `close` before its store is closed. `line` is where other nodes can be
    asked, None while it isn't open. `troubles` hears of what can't be written. `condition` tells how the node is, None
    between two terms. `on_lent` gets what the node lends of which projects, until when (ns), before anybody may use it.
    """

    def __init__(
        self,
        connect: Connections,
        settings: Settings,
        node: Node,
        book: TopicCache,
        tenants: TenantRegistry,
        troubles: Troubles,
        condition: Callable[[], Condition | None] = lambda: None,
        on_lent: Callable[[Mapping[str, int]], None] = lambda _lent: None,
    ) -> None:
        env = settings.env
        self.line: RequestBus | None = None
        self._questions = connect.questions(settings, f"{node.id} answers")
        self._answering = WhyResponder(self._questions, env, node, tenants, lost=book.lost_topic)
        self._emptiness = GroupResponder(self._questions, env, node)
        self._showing = OverviewResponder(self._questions, env, node, tenants, book.get, condition)
        self._taking = QuotaBorrower(self._questions, env, node, book.on_change, on_lent)
        self._counting = BacklogReporter(connect.questions(settings, f"{node.id} counts"), env, node, book)
        self._store_watch = StoreWatch(node.store, env, troubles, lambda: node.owned.mine)
        self._sampling = QueueSampler(node, tenants)
        self._metering = MeterPublisher(node, tenants, settings.meter_interval, settings.concurrency)

    async def open(self) -> None:
        """Raises Unreachable."""
        await self._answering.open()
        self._emptiness.listen()
        self._showing.listen()
        self._taking.open()
        self.line = self._questions
        await self._counting.open()
        self._store_watch.open()
        self._sampling.open()
        self._metering.open()

    async def close(self) -> None:
        """Harmless when it was opened in part, or never."""
        self.line = None
        beside = (
            self._sampling, self._metering, self._store_watch, self._counting, self._taking, self._emptiness,
            self._showing, self._answering,
        )  # fmt: skip
        for part in beside:
            await part.close()
