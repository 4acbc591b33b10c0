"""View of a node's process for its metrics, pages and HTTP routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry


class NodeView(Protocol):
    """A node's process. A property that is None belongs to a session, or needs etcd's first answer."""

    @property
    def settings(self) -> Settings: ...

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def node(self) -> Node | None: ...

    @property
    def tenants(self) -> TenantRegistry | None: ...

    @property
    def times(self) -> LatencyStats | None: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def moves(self) -> Counter[str]:
        """Partition moves by kind."""

    @property
    def refused(self) -> tuple[int, dict[str, int]]:
        """The number of topics rejected at present, if this process leads; and counts of all rejections by place."""

    @property
    def troubles(self) -> Troubles: ...

    @property
    def blocked_s(self) -> float:
        """Total seconds for which the event loop was blocked."""

    @property
    def standing(self) -> tuple[int, int] | None:
        """Partitions and generation, while the node serves or is on standby."""

    @property
    def waiting(self) -> str:
        """What the node waits for, in words, before it serves or is on standby; empty if it hasn't joined."""

    @property
    def is_stopping(self) -> bool: ...

    @property
    def desired_nodes(self) -> int | None:
        """The number of nodes that an autoscaler should read from the metrics; None if none should."""

    @property
    def subscriptions(self) -> tuple[RunningNodes, ...]:
        """All subscriptions, if there are named ones and this process leads; otherwise empty."""

    @property
    def registry(self) -> RegistryView:
        """The registry of subscriptions; that of an environment without named ones, before etcd's first answer."""

    @property
    def line(self) -> RequestBus | None:
        """Connection for requests to other nodes."""

    def condition(self) -> Condition | None:
        """Return the present condition; None between two sessions, when there is no lease or no node."""
