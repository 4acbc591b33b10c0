"""Makes a node go by a new registry of subscriptions, and finds out when nothing goes by an older one any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.partitions.owned_partitions import OwnedPartitions
    from evenlane.engine.node.settle.removal_bound import RemovalBound
    from evenlane.engine.node.settle.settler import Settler

_LOOK_S = 0.02


class RegistryAdoption:
    """Call `adopt` for each view of the registry, then `complete`."""

    def __init__(self, bound: RemovalBound, owned: OwnedPartitions, settler: Settler) -> None:
        self._bound, self._owned, self._settler = bound, owned, settler

    def adopt(self, view: RegistryView) -> None:
        """Plan no more removals, and cut no more records of settle logs, by an older view."""
        before, self._bound.view = self._bound.is_shared, view
        if before and not self._bound.is_shared:
            for lane in self._owned.lanes():
                self._settler.tend(lane)  # what others held can go now

    async def complete(self) -> None:
        """Return once all removals that were planned by an older view have ended, and the log of each lane that this
        node has owned since has a record that was cut by the adopted one.
        """
        removals = [*self._settler.truncator.tasks.by_lane.values()]
        lanes = self._owned.list_all_lanes()
        await self._wait_while(lambda: any(not (lane.log.has_begun or lane.fenced) for lane in self._among(lanes)))
        await self._settler.prove(lambda: self._among(lanes))
        # A closed log takes no more records. Its next owner compares the registry before it begins.
        await self._wait_while(lambda: any(lane.log.closed and not lane.fenced for lane in self._among(lanes)))
        if removals:
            await asyncio.wait(removals)

    def _among(self, lanes: list[FedLane]) -> list[FedLane]:
        """Those lanes that this node still has."""
        present = {id(lane) for lane in self._owned.list_all_lanes()}
        return [lane for lane in lanes if id(lane) in present]

    @staticmethod
    async def _wait_while(is_so: Callable[[], bool]) -> None:
        while is_so():  # noqa: ASYNC110 - many events end it
            await asyncio.sleep(_LOOK_S)
