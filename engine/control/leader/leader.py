"""Builds the leader: reconciling topics, placing partitions, lending quota, collecting empty groups, scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evenlane.engine.cluster.leader_election import LeaderElection
from evenlane.engine.control.leader.group_collector import GroupCollector
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.quota_lender import QuotaLender
from evenlane.engine.control.leader.run_together import run_together
from evenlane.engine.control.leader.scaling_controller import ScalingController
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.placement import load_strategy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.cluster.connections import Connections
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.cluster.topics.topic_cache import TopicCache
    from evenlane.engine.control.leader.run_together import Controller
    from evenlane.engine.control.scaling.target import ReplicaTarget
    from evenlane.ring.coordination.ports import Coordination


class Leader(Protocol):
    """What a process needs of its candidacy; see `TopicController`."""

    @property
    def leading(self) -> asyncio.Event: ...

    @property
    def alarms(self) -> Mapping[str, str]: ...

    @property
    def refused(self) -> int: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class SubscriptionLeader:
    """Campaigns to lead the cluster of a named subscription. Topics are the same for all subscriptions, so the leader
    of the unnamed one reconciles them and collects their groups; this one only runs `controllers`.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        holder: str,
        controllers: Controller,
        *,
        lease_ttl_s: int,
        node_lease: Callable[[], int],
    ) -> None:
        self._controllers = controllers
        self.alarms: Mapping[str, str] = {}
        self.refused = 0
        self._election = LeaderElection(
            coordination, cluster, holder, self._lead, lease_ttl_s=lease_ttl_s, node_lease=node_lease
        )

    @property
    def leading(self) -> asyncio.Event:
        return self._election.leading

    async def start(self) -> None:
        self._election.start()

    async def close(self) -> None:
        await self._election.close()

    async def _lead(self, epoch: int) -> None:
        await self._controllers(self._election.fence(epoch))


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
    takes: Callable[[str], bool] = lambda _project: True,
    shares: bool = True,
    replica_target: ReplicaTarget | None = None,
) -> Leader:
    """Build the candidacy of `holder` for the leader of its cluster, which gets the messages of the projects that
    `takes` says. Without `shares` the leader lends no quota, and
    without `replica_target` it only records how many nodes there should be. Raises ConfigError if the placement
    strategy can't be had.
    """
    cluster, ttl_s = settings.cluster, int(settings.lease_ttl)
    strategy = load_strategy(settings.placement)
    placement = PlacementController(
        coordination, cluster, cluster_config, topic_cache, (settings.placement, strategy), records, takes=takes
    )
    quota_lender = QuotaLender(lambda: connect.questions(settings, f"{holder} shares"), cluster, settings.lease_ttl)
    controllers = [placement.serve, *([quota_lender.serve] if shares else [])]
    if settings.scaling != "off":
        scaling = ScalingController(
            coordination, cluster, holder, cluster_config.partitions, settings, records, replica_target
        )
        controllers.append(scaling.serve)
    if settings.subscription is not None:
        return SubscriptionLeader(
            coordination, cluster, holder, run_together(*controllers), lease_ttl_s=ttl_s, node_lease=node_lease
        )

    async def remove_groups(project: str, groups: Collection[int], number: int) -> bool:
        return await topic_controller.remove_groups(project, groups, number)

    group_collector = GroupCollector(
        coordination, settings.env, cluster_config.partitions, topic_cache,
        lambda: connect.questions(settings, f"{holder} empties"), remove_groups, settings.duplicate_window,
    )  # fmt: skip
    topic_controller = TopicController(
        coordination, settings.env, cluster_config, holder, ttl_s,
        other_controllers=run_together(*controllers, group_collector.serve), node_lease=node_lease,
        last_good=topic_cache.get,
    )  # fmt: skip
    return topic_controller
