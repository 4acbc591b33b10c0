"""Builds the leader: reconciling topics, placing partitions, lending quota, collecting empty groups, scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.control.leader.group_collector import GroupCollector
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.quota_lender import QuotaLender
from evenlane.engine.control.leader.run_together import run_together
from evenlane.engine.control.leader.scaling_controller import ScalingController
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.placement import load_strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.control.scaling.target import ReplicaTarget
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
    replica_target: ReplicaTarget | None = None,
) -> TopicController:
    """Build a controller that campaigns as `holder` and runs all controllers. Without `shares` it lends no quota, and
    without `replica_target` it only records how many nodes there should be. Raises ConfigError if the placement
    strategy can't be had.
    """
    env = settings.env

    async def remove_groups(project: str, groups: Collection[int], number: int) -> bool:
        return await topic_controller.remove_groups(project, groups, number)

    strategy = load_strategy(settings.placement)
    placement = PlacementController(
        coordination, env, cluster_config, topic_cache, (settings.placement, strategy), records
    )
    group_collector = GroupCollector(
        coordination, env, cluster_config.partitions, topic_cache,
        lambda: connect.questions(settings, f"{holder} empties"), remove_groups, settings.duplicate_window,
    )  # fmt: skip
    quota_lender = QuotaLender(lambda: connect.questions(settings, f"{holder} shares"), env, settings.lease_ttl)
    controllers = [placement.serve, group_collector.serve, *([quota_lender.serve] if shares else [])]
    if settings.scaling != "off":
        scaling = ScalingController(
            coordination, env, holder, cluster_config.partitions, settings, records, replica_target
        )
        controllers.append(scaling.serve)
    topic_controller = TopicController(
        coordination, env, cluster_config, holder, int(settings.lease_ttl),
        other_controllers=run_together(*controllers), node_lease=node_lease, last_good=topic_cache.get,
    )  # fmt: skip
    return topic_controller
