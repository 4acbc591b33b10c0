"""Builds the leader: reconciling topics, placing partitions, lending quota, collecting empty groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.control.leader.duties import run_together
from evenlane.engine.control.leader.group_collector import GroupCollector
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.quota_lender import QuotaLender
from evenlane.engine.control.leader.topic_controller import TopicController

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.ring.coordination.ports import Coordination


def build_leader(
    holder: str,
    coordination: Coordination,
    connect: Connections,
    settings: Settings,
    cluster_config: ClusterConfig,
    topic_cache: TopicCache,
    records: RecordReader,
    node_lease: Callable[[], int],
    *,
    shares: bool = True,
) -> TopicController:
    """Build a controller that campaigns as `holder` and performs all duties. Without `shares` it lends no quota."""
    env = settings.env

    async def emptied(project: str, groups: Collection[int], number: int) -> bool:
        return await acceptor.emptied(project, groups, number)

    placing = PlacementController(coordination, env, cluster_config, topic_cache, settings.placement, records)
    emptying = GroupCollector(
        coordination, env, cluster_config.partitions, topic_cache,
        lambda: connect.questions(settings, f"{holder} empties"), emptied, settings.duplicate_window,
    )  # fmt: skip
    giving = QuotaLender(lambda: connect.questions(settings, f"{holder} shares"), env, settings.lease_ttl)
    duties = [placing.serve, emptying.serve, *([giving.serve] if shares else [])]
    acceptor = TopicController(
        coordination, env, cluster_config, holder, int(settings.lease_ttl), other_duties=run_together(*duties),
        node_lease=node_lease, last_good=topic_cache.get,
    )  # fmt: skip
    return acceptor
