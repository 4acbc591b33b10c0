"""Deletes a subscription: its streams, its keys, and its entry in the registry, in this order.

Until the entry is gone, owners keep what the subscription would still need. A deletion that ends anywhere can be
repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import no_such_subscription
from evenlane.engine.control.subscriptions.living_nodes import describe_nodes, list_nodes
from evenlane.engine.control.subscriptions.registry_editor import RegistryEditor
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.ports import DeleteKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.subscriptions.registry import State, Subscription
    from evenlane.engine.control.subscriptions.registry_editor import Known
    from evenlane.engine.core.ports import Store
    from evenlane.ring.coordination.ports import Coordination

_MOST_OPS = 100  # in a transaction


class SubscriptionDeletion:
    """Deletes the subscription `name`. `own` is an open store of its cluster; None only to check."""

    def __init__(self, coordination: Coordination, env: str, name: str, own: Store | None) -> None:
        self._coordination, self._env, self._name = coordination, env, names.check_subscription(name)
        self._own, self._cluster = own, names.cluster_name(env, name)
        self._editor = RegistryEditor(coordination, env)

    async def check(self) -> Subscription:
        """Return the subscription. Raises EvenlaneError if it doesn't exist, or if nodes work for it;
        CoordinationError.
        """
        _, known = await self._editor.read()
        found = self._entry(known)
        await self._check_unused()
        return found

    async def run(self) -> None:
        """Delete the subscription, or complete a deletion that was broken off. Raises EvenlaneError as `check` does:
        the subscription then is as before; Lost, Refused, CoordinationError.
        """
        before = (await self.check()).state
        before = await self._set_state(lambda found: found.state != "deleting", "deleting") or before
        try:
            await self._check_unused()  # a node that saw the old state may have come
        except EvenlaneError:
            if before != "deleting":
                await self._set_state(lambda found: found.state == "deleting", before)
            raise
        await self._finish()

    async def take_back(self, since: int) -> None:
        """Undo a creation that began at `since`, unless it is complete or was deleted. Raises as `run` does."""
        _, known = await self._editor.read()
        if self._name in known and await self._set_state(
            lambda found: found.state == "creating" and found.since == since, "deleting"
        ):
            await self._finish()

    async def _set_state(self, is_due: Callable[[Subscription], bool], state: State) -> State | None:
        """Change the state if that is due. Returns the state of before; None if it wasn't due."""
        before: State | None = None

        def edit(known: Known) -> Known | None:
            nonlocal before
            found = self._entry(known)
            before = found.state if is_due(found) else None
            return None if before is None else {**known, self._name: replace(found, state=state)}

        await self._editor.change(edit)
        return before

    async def _finish(self) -> None:
        assert self._own is not None, "a store to delete streams from"
        await self._own.delete_own_streams()
        items = (await self._coordination.list(names.key(self._cluster, ""))).items
        for start in range(0, len(items), _MOST_OPS):
            await self._coordination.txn([], [DeleteKey(item.key) for item in items[start : start + _MOST_OPS]])
        await self._editor.change(self._without)

    def _without(self, known: Known) -> Known | None:
        """The registry without the entry, unless another call has removed it, or it was created again since."""
        if self._name not in known or known[self._name].state != "deleting":
            return None
        return {name: each for name, each in known.items() if name != self._name}

    def _entry(self, known: Known) -> Subscription:
        if self._name not in known:
            raise no_such_subscription(self._name, self._env, known)
        return known[self._name]

    async def _check_unused(self) -> None:
        """Raise EvenlaneError while nodes work for the subscription."""
        nodes = await list_nodes(self._coordination, self._cluster)
        owned = (await self._coordination.list(names.key(self._cluster, "owners", ""))).items
        if not nodes and not owned:
            return
        if nodes:
            still = (
                f"{describe_nodes(nodes)} {'works for it: stop it' if len(nodes) == 1 else 'work for it: stop them'}"
            )
        else:
            still = "some of its partitions have owners until their leases have ended: wait for that"
        raise EvenlaneError(f"subscription {self._name!r} of environment {self._env!r} is in use: {still} first")
