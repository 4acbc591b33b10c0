"""A node's process as its metrics, its pages and its HTTP routes see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.troubles import Troubles
    from evenlane.engine.core.ports import RequestBus
    from evenlane.engine.core.stats.latency import LatencyStats
    from evenlane.engine.node.counters import Counters
    from evenlane.engine.node.node import Node
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry


class NodeView(Protocol):
    """What is None belongs to a session, or to what follows the first answer of etcd: a process between two sessions
    has no node.
    """

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
        """Partitions that came and went, by how."""

    @property
    def refused(self) -> tuple[int, dict[str, int]]:
        """Topics refused now, if this process leads; and by where they were found, all that were refused."""

    @property
    def troubles(self) -> Troubles: ...

    @property
    def blocked_s(self) -> float:
        """For how long in all the event loop was blocked."""

    @property
    def standing(self) -> tuple[int, int] | None:
        """Partitions and generation, as long as the node serves or stands by."""

    @property
    def stopping(self) -> bool: ...

    @property
    def line(self) -> RequestBus | None:
        """By which other nodes can be asked."""

    def condition(self) -> Condition | None:
        """Of this moment; None between two sessions, when there is neither a lease nor a node."""
