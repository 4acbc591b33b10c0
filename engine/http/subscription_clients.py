"""Clients by which a node answers for its own subscription, and for others that a request names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from evenlane.engine.admin.overview.client import OverviewClient
from evenlane.engine.admin.why.client import WhyClient
from evenlane.engine.cluster import connections
from evenlane.engine.control.subscriptions.client import SubscriptionClient
from evenlane.engine.http.dead_letters import DeadLetterService

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.ring.coordination.ports import Coordination

    Line = Callable[[], AbstractAsyncContextManager[RequestBus]]


class ClusterClients:
    """The clients for one subscription, which the settings name."""

    def __init__(self, settings: Settings, coordination: Coordination, line: Line) -> None:
        self.why = WhyClient(coordination, settings.cluster, line)
        self.overview = OverviewClient(coordination, settings.cluster, line)
        self.dead_letters = DeadLetterService(settings)


class SubscriptionClients:
    """`own` is for the node's own subscription. Invariant: `_others` has existing ones that requests have named."""

    def __init__(self, settings: Settings, coordination: Coordination, line: Line) -> None:
        self._settings, self._coordination, self._line = settings, coordination, line
        self.own = ClusterClients(settings, coordination, line)
        self._others: dict[str, ClusterClients] = {}

    async def of(self, name: str | None) -> ClusterClients:
        """Return the clients for a subscription. None: the node's own; empty: the unnamed one. Raises InvalidName,
        Unreachable; NoSuchSubscription if there is none of this name.
        """
        if name is None or name == (self._settings.subscription or ""):
            return self.own
        if name:
            with connections.translate_errors():
                await SubscriptionClient(self._coordination, self._settings.env).check(name)
        if name not in self._others:
            settings = replace(self._settings, subscription=name or None)
            self._others[name] = ClusterClients(settings, self._coordination, self._line)
        return self._others[name]

    async def close(self) -> None:
        """End replays and drops."""
        await asyncio.gather(*(each.dead_letters.close() for each in (self.own, *self._others.values())))
