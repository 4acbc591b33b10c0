"""Client for subscriptions: shows them with their nodes and streams."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import no_such_subscription
from evenlane.engine.control.subscriptions.living_nodes import list_nodes
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor

if TYPE_CHECKING:
    from evenlane.engine.cluster.subscriptions.registry import Subscription
    from evenlane.ring.coordination.ports import Coordination


class SubscriptionStatus(NamedTuple):
    """A subscription with its living nodes, and the streams that are its own. `name` is None for the one without a
    name, which has no beginning (`since`, RFC 3339), and no patterns of projects.
    """

    name: str | None
    state: str
    since: str | None
    projects: list[str]
    nodes: list[str]
    streams: list[str]

    def document(self) -> dict[str, Any]:
        return self._asdict()


class SubscriptionClient:
    """Reads subscriptions. Each call may raise CoordinationError, and EvenlaneError for a registry that can't be
    read.
    """

    def __init__(self, coordination: Coordination, env: str) -> None:
        self._coordination, self._env = coordination, env
        self._editor = RegistryEditor(coordination, env)

    async def all(self) -> list[SubscriptionStatus]:
        """Return the subscription without a name, and then all others by name."""
        _, known = await self._editor.read()
        nodes = await list_nodes(self._coordination, self._env)
        unnamed = SubscriptionStatus(None, "active", None, [], nodes, [])
        return [unnamed, *[await self._build_status(name, known[name]) for name in sorted(known)]]

    async def list_names(self) -> list[str]:
        """Return the names of all named subscriptions, in any state."""
        _, known = await self._editor.read()
        return [*known]

    async def get(self, name: str) -> SubscriptionStatus:
        """Return one subscription. Raises InvalidName, and EvenlaneError if it doesn't exist."""
        return await self._build_status(name, await self.check(name))

    async def check(self, name: str) -> Subscription:
        """Return a subscription's entry in the registry. Raises InvalidName, and EvenlaneError if it doesn't exist."""
        names.check_subscription(name)
        _, known = await self._editor.read()
        if name not in known:
            raise no_such_subscription(name, self._env, known)
        return known[name]

    async def _build_status(self, name: str, found: Subscription) -> SubscriptionStatus:
        cluster = names.cluster_name(self._env, name)
        return SubscriptionStatus(
            name,
            found.state,
            format_since(found.since),
            found.projects,
            await list_nodes(self._coordination, cluster),
            [*names.own_streams(cluster)],
        )


def format_since(at: int) -> str:
    """Format unix ns as RFC 3339; a time that no date can have, which somebody else has written, as it is."""
    try:
        return f"{datetime.fromtimestamp(at // 10**9, UTC):%Y-%m-%dT%H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return str(at)
