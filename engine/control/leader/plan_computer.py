"""Computes placements from the loads of the present topics; large ones in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.ring.placement.load import Demand, partition_loads
from evenlane.ring.placement.placement import PlacementError, gather, place
from evenlane.ring.placement.strategy import PlacementNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.ring.hashing import Layout
    from evenlane.ring.placement.strategy import PlacementStrategy

    T = TypeVar("T")

_log = structlog.get_logger(__name__)


class PlanComputer:
    """Invariant: `_loads` belongs to `_loads_of`, a value of `_changes`; it is out of date once the two differ.

    `much` is the size above which a placement is computed in a thread (`PlacementTuning`). Only projects
    for which `takes` returns True put a load on the cluster.
    """

    def __init__(
        self,
        cluster_config: ClusterConfig,
        topic_cache: TopicCache,
        strategy: tuple[str, PlacementStrategy],
        much: int,
        takes: Callable[[str], bool] = lambda _project: True,
    ) -> None:
        self._partitions, self._layout = cluster_config.partitions, cluster_config.layout
        self._topic_cache = topic_cache
        self._strategy_name, self._strategy = strategy
        self._much, self._takes = much, takes
        self._loads: list[float] | None = None
        self._changes = 0  # number of topic changes
        self._loads_of = -1  # value of `_changes` that `_loads` reflects

    def on_topic_change(self) -> None:
        self._changes += 1

    async def place(self, nodes: Sequence[tuple[str, str]], present: dict[int, str]) -> list[str | None]:
        """The placement on `nodes` (name, zone) by the strategy; if it fails, by the built-in one, so that no partition
        stays without an owner.
        """

        def place_built_in(loads: list[float], error: str) -> list[str | None]:
            _log.error("placement strategy failed, so bounded-ring places", strategy=self._strategy_name, error=error)
            return place(_placement_nodes(nodes), loads, present, layout=self._layout)

        return await self._compute(place, place_built_in, nodes, present)

    async def gather(self, nodes: Sequence[tuple[str, str]], present: dict[int, str]) -> list[str | None] | None:
        """One step of gathering at rest; None if there is none, or if the strategy fails."""

        def leave(_loads: list[float], error: str) -> None:
            _log.error(
                "placement strategy failed, so partitions aren't gathered", strategy=self._strategy_name, error=error
            )

        return await self._compute(gather, leave, nodes, present)

    async def _compute(
        self,
        compute: Callable[[list[PlacementNode], list[float], dict[int, str], PlacementStrategy, Layout], T],
        replace: Callable[[list[float], str], T],
        nodes: Sequence[tuple[str, str]],
        present: dict[int, str],
    ) -> T:
        """What `compute` returns; if the strategy fails, what `replace` returns for the loads and the error's text."""
        topics, changes = self._topic_cache.all(), self._changes

        def with_loads() -> tuple[list[float], T]:
            loads = self._loads if self._loads_of == changes else None
            if loads is None:
                demands = (
                    Demand(name, t.topic.qps, t.topic.groups, t.topic.spread, self._layout)
                    for name, t in topics.items()
                    if self._takes(name)
                )
                loads = partition_loads(demands, self._partitions)
            try:
                return loads, compute(_placement_nodes(nodes), loads, present, self._strategy, self._layout)
            except PlacementError as error:
                return loads, replace(loads, str(error))

        much = max(len(nodes) * self._partitions, len(topics)) > self._much
        self._loads, computed = await asyncio.to_thread(with_loads) if much else with_loads()
        self._loads_of = changes
        return computed


def _placement_nodes(nodes: Sequence[tuple[str, str]]) -> list[PlacementNode]:
    return [PlacementNode(name, zone) for name, zone in nodes]
