"""Placement: the node of each of a load's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.hashing import partition_of
from evenlane.ring.placement.load import Demand, partition_loads
from evenlane.ring.placement.placement import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.proof.load.load import Load, LoadTenant

NAMES = tuple(f"node-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")


class Placement:
    """`owners` has the number of each partition's node."""

    def __init__(self, cluster_config: ClusterConfig, owners: Sequence[int], nodes: int) -> None:
        self.owners, self.nodes, self._cluster_config = owners, nodes, cluster_config
        self.partitions = [frozenset(p for p, owner in enumerate(owners) if owner == node) for node in range(nodes)]
        """Each node's own."""

    def node_of(self, tenant: LoadTenant, group: int) -> int:
        config = self._cluster_config
        return self.owners[partition_of(tenant.name, group, tenant.topic.spread, config.partitions, config.layout)]

    def groups_of(self, tenant: LoadTenant) -> list[list[int]]:
        """The tenant's groups on each node."""
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for group in range(tenant.topic.groups):
            found[self.node_of(tenant, group)].append(group)
        return found


def place_on_one(cluster_config: ClusterConfig) -> Placement:
    """Place all groups on one node."""
    return Placement(cluster_config, [0] * cluster_config.partitions, 1)


def place_groups(load: Load, nodes: int) -> Placement:
    """Place the groups as a leader would with these topics, if all nodes joined at once."""
    if nodes == 1:
        return place_on_one(load.cluster_config)
    owners = place(
        NAMES[:nodes], partition_loads_of(load.tenants, load.cluster_config), {}, layout=load.cluster_config.layout
    )
    return Placement(load.cluster_config, [NAMES.index(owner) for owner in owners if owner is not None], nodes)


def partition_loads_of(tenants: Iterable[LoadTenant], cluster_config: ClusterConfig) -> list[float]:
    """The load of each partition, as the leader sees it."""
    topics = ((each.name, each.topic) for each in tenants)
    demands = (Demand(name, topic.qps, topic.groups, topic.spread, cluster_config.layout) for name, topic in topics)
    return partition_loads(demands, cluster_config.partitions)
