"""Ends a session whose subscription doesn't exist, or not any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.cluster.subscriptions.registry import check_active, read_view, registry_key
from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES, SubscriptionFilter
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.membership.records import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
    from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
    from evenlane.ring.coordination.ports import Coordination


class SubscriptionGuard:
    """Of one session. `on_gone(reason)` is called when its subscription is deleted, or created again. The unnamed
    one always exists. Call `begin` first, `confirm` once the node is registered, and `close` at the end.
    """

    def __init__(
        self, settings: Settings, coordination: Coordination, registry: RegistryWatch, on_gone: Callable[[str], None]
    ) -> None:
        self._env, self._name = settings.env, settings.subscription
        self._coordination, self._registry, self._on_gone = coordination, registry, on_gone
        self._found: Subscription | None = None

    def begin(self) -> SubscriptionFilter:
        """Return which messages are for the subscription. Raises EvenlaneError unless it exists."""
        if self._name is None:
            return ALL_MESSAGES
        found = self._found = check_active(self._registry.view, self._env, self._name)
        self._registry.on_change.append(self._on_change)
        self._on_change(self._registry.view)
        return found.filter

    async def confirm(self) -> None:
        """Ask etcd itself: a deletion looks for nodes once its entry is written, so it sees this node, or this node
        sees the entry. Raises EvenlaneError, CoordinationError.
        """
        if self._name is not None:
            try:
                view = read_view(await self._coordination.get(registry_key(self._env)))
            except RecordError as error:
                raise EvenlaneError(f"the subscriptions in etcd can't be read: {error}") from error
            self._check(view)

    def close(self) -> None:
        if self._found is not None:
            self._registry.on_change.remove(self._on_change)
            self._found = None

    def _on_change(self, view: RegistryView) -> None:
        if view.subscriptions is None:
            return  # nobody knows: what is there stays
        try:
            self._check(view)
        except EvenlaneError as error:
            self._on_gone(str(error))

    def _check(self, view: RegistryView) -> None:
        assert self._name is not None, "the unnamed subscription always exists"
        found = check_active(view, self._env, self._name)
        if self._found is not None and found.since != self._found.since:
            raise EvenlaneError(
                f"subscription {self._name!r} of environment {self._env!r} was deleted and created again"
            )
