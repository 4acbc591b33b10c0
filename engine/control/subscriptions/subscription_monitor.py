"""Counts the running nodes of each subscription, for metrics and pages: the leader of any cluster does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.control.subscriptions.living_nodes import list_nodes
from evenlane.ring.coordination.ports import CoordinationError

if TYPE_CHECKING:
    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
    from evenlane.ring.coordination.ports import Coordination

_EVERY_S = 10.0


class RunningNodes(NamedTuple):
    """A subscription with the number of its running nodes; `name` is empty for the unnamed one."""

    name: str
    state: str
    nodes: int


class SubscriptionMonitor:
    """Call `open`, then `close`. While this process leads and there are named subscriptions, it counts every ten
    seconds, and when the registry changes. Otherwise it sends no request.

    The leader of each cluster does so: a cluster without nodes has none that could report that nobody runs it.
    """

    def __init__(self, coordination: Coordination, env: str, registry: RegistryWatch, leading: asyncio.Event) -> None:
        self._coordination, self._env, self._registry, self._leading = coordination, env, registry, leading
        self._counted: tuple[RunningNodes, ...] = ()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> tuple[RunningNodes, ...]:
        """All subscriptions, the unnamed one first; empty if there is no named one, or this process doesn't lead."""
        return self._counted if self._leading.is_set() and self._registry.view.subscriptions else ()

    def open(self) -> None:
        self._registry.on_change.append(self._on_change)
        self._task = asyncio.create_task(self._run(), name="subscription monitor")

    async def close(self) -> None:
        """Stop. No effect if never opened."""
        if self._task is not None:
            self._registry.on_change.remove(self._on_change)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _on_change(self, _view: RegistryView) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._leading.wait()
            self._changed.clear()
            if known := self._registry.view.subscriptions:
                states = {"": "active"} | {name: known[name].state for name in sorted(known)}
                with contextlib.suppress(CoordinationError):  # the last counts stay; the lease's keeper logs an outage
                    self._counted = await self._count(states)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S if known else None):
                    await self._changed.wait()

    async def _count(self, states: dict[str, str]) -> tuple[RunningNodes, ...]:
        counted = []
        for name, state in states.items():
            nodes = await list_nodes(self._coordination, names.cluster_name(self._env, name))
            counted.append(RunningNodes(name, state, len(nodes)))
        return tuple(counted)
