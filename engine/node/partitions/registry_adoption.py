"""Makes a node follow a new registry of subscriptions, and finds out when nothing follows an older one any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
    from evenlane.engine.node.partitions.queue_resolver import QueueResolver
    from evenlane.engine.node.settle.removal_bound import RemovalBound
    from evenlane.engine.node.settle.settler import Settler

_log = structlog.get_logger(__name__)

_LOOK_S = 0.02
_PAUSE_S = 0.2


def _do_nothing() -> None:
    """The `on_reset` of a node that can't own partitions yet."""


class RegistryAdoption:
    """Call `begin` before the node owns any partition; and `adopt` for each view of the registry, then `complete`.
    `on_reset` is called once the node's own subscription was reset: all partitions must be taken over again.
    """

    def __init__(
        self, bound: RemovalBound, owned: OwnedPartitions, settler: Settler, resolver: QueueResolver, cluster: str
    ) -> None:
        self._bound, self._owned, self._settler = bound, owned, settler
        self._resolver, self._name = resolver, names.subscription_of(cluster)
        self.on_reset: Callable[[], None] = _do_nothing
        self._reported: frozenset[str] = frozenset()  # the missing subscriptions that the log has named

    async def begin(self) -> None:
        """Find the subscriptions that have settle logs. Raises Lost."""
        await self._bound.recall()

    def adopt(self, view: RegistryView) -> None:
        """Plan no more removals, and cut no more records of settle logs, by an older view."""
        self._bound.adopt(view)
        found = (view.subscriptions or {}).get(self._name)
        if found is not None and found.reset > self._resolver.chosen.reset:
            self._resolver.chosen = found.filter
            self.on_reset()

    @property
    def has_unlisted(self) -> bool:
        """Whether the node counts subscriptions that the registry doesn't list; `complete` looks for them again."""
        return self._bound.has_unlisted

    async def complete(self) -> None:
        """Return once all removals that were planned by an older view have ended, and the log of each lane that this
        node has owned since has a record that was cut by the adopted one. What only a deleted subscription held is then
        removed.
        """
        removals = [*self._settler.truncator.tasks.by_lane.values()]
        lanes = self._owned.list_all_lanes()
        await self._wait_while(lambda: any(not (lane.log.has_begun or lane.fenced) for lane in self._among(lanes)))
        await self._settler.prove(lambda: self._among(lanes))
        # A closed log takes no more records. Its next owner compares the registry before it begins.
        await self._wait_while(lambda: any(lane.log.closed and not lane.fenced for lane in self._among(lanes)))
        if removals:
            await asyncio.wait(removals)
        await self._release_held()

    async def _release_held(self) -> None:
        """Have what others held removed, if there are no others any more."""
        while True:
            try:
                unlisted = await self._bound.check_unlisted()
                break
            except (Lost, Refused):
                await asyncio.sleep(_PAUSE_S)
        for cluster in sorted(unlisted - self._reported):
            _log.error("a subscription is missing in etcd: nothing that it needs is removed", cluster=cluster)
        self._reported = unlisted
        if not self._bound.is_shared:
            for lane in self._owned.lanes():
                self._settler.tend(lane)

    def _among(self, lanes: list[FedLane]) -> list[FedLane]:
        """Those lanes that this node still has."""
        present = {id(lane) for lane in self._owned.list_all_lanes()}
        return [lane for lane in lanes if id(lane) in present]

    @staticmethod
    async def _wait_while(is_so: Callable[[], bool]) -> None:
        while is_so():  # noqa: ASYNC110 - many events end it
            await asyncio.sleep(_LOOK_S)
