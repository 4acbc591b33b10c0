"""Changes the registry of subscriptions, each time by comparison with the revision that was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evenlane.engine.cluster.subscriptions.registry import (
    RegistryRecord,
    RegistryView,
    Retain,
    Subscription,
    read_view,
    registry_key,
)
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import DeleteKey, PutKey
from evenlane.ring.membership.records import RecordError, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.ring.coordination.ports import Coordination

_TRIES = 20  # while others change other subscriptions
Known: TypeAlias = "Mapping[str, Subscription]"


class RegistryEditor:
    """Each call may raise CoordinationError, and EvenlaneError for a registry that can't be read."""

    def __init__(self, coordination: Coordination, env: str) -> None:
        self._coordination, self._env = coordination, env

    async def read(self) -> tuple[int, Known]:
        """Return the registry's mod-revision (0: there is none), and its subscriptions by name."""
        view = await self._view()
        return view.revision, view.subscriptions or {}

    async def read_retain(self) -> Retain | None:
        """Return how long settled messages are kept."""
        return (await self._view()).retain

    async def change_retain(self, retain: Retain | None) -> int:
        """Set how long settled messages are kept. Returns the revision from which on the registry says so."""
        return await self._change(
            lambda view: None if view.retain == retain else RegistryRecord(
                subscriptions={**(view.subscriptions or {})}, retain=retain
            )
        )  # fmt: skip

    async def change(self, edit: Callable[[Known], Known | None]) -> int:
        """Write what `edit` makes of the present subscriptions; None: leave them. `edit` may be called again, as others
        may change the registry at the same time, and may raise.

        Returns the revision from which on the registry is as `edit` wants it.
        """

        def change(view: RegistryView) -> RegistryRecord | None:
            changed = edit(view.subscriptions or {})
            return None if changed is None else RegistryRecord(subscriptions={**changed}, retain=view.retain)

        return await self._change(change)

    async def _change(self, edit: Callable[[RegistryView], RegistryRecord | None]) -> int:
        """The key goes once there is nothing to say in it."""
        for _ in range(_TRIES):
            view = await self._view()
            changed = edit(view)
            if changed is None:
                return view.revision
            key = registry_key(self._env)
            is_empty = not changed.subscriptions and changed.retain is None
            put = DeleteKey(key) if is_empty else PutKey(key, encode(changed))
            result = await self._coordination.txn([view.compare(self._env)], [put])
            if result.succeeded:
                return result.revision
        raise EvenlaneError(
            f"others keep changing the subscriptions of environment {self._env!r} at the same time: try again"
        )

    async def _view(self) -> RegistryView:
        try:
            return read_view(await self._coordination.get(registry_key(self._env)))
        except RecordError as error:
            raise EvenlaneError(f"the subscriptions in etcd can't be read: {error}") from error
