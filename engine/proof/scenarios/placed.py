"""Which node has which of a load's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.hashing import partition_of
from evenlane.ring.placement.load import Demand, partition_loads
from evenlane.ring.placement.placement import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.proof.scenarios.load import Load, Tenant

NAMES = tuple(f"node-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")


class Placed:
    """`owners` has the number of each partition's node."""

    def __init__(self, facts: ClusterConfig, owners: Sequence[int], nodes: int) -> None:
        self.owners, self.nodes, self._partitions = owners, nodes, facts.partitions
        self.partitions = [frozenset(p for p, owner in enumerate(owners) if owner == node) for node in range(nodes)]
        """Each node's own."""

    def node_of(self, tenant: Tenant, group: int) -> int:
        return self.owners[partition_of(tenant.name, group, tenant.topic.spread, self._partitions)]

    def groups_of(self, tenant: Tenant) -> list[list[int]]:
        """The tenant's groups on each node."""
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for group in range(tenant.topic.groups):
            found[self.node_of(tenant, group)].append(group)
        return found


def on_one(facts: ClusterConfig) -> Placed:
    """All on one node."""
    return Placed(facts, [0] * facts.partitions, 1)


def placed(load: Load, nodes: int) -> Placed:
    """As a leader would with these topics, if all nodes came at once."""
    if nodes == 1:
        return on_one(load.facts)
    topics = ((each.name, each.topic) for each in load.tenants)
    demands = (Demand(name, topic.qps, topic.groups, topic.spread) for name, topic in topics)
    owners = place(NAMES[:nodes], partition_loads(demands, load.facts.partitions), {})
    return Placed(load.facts, [NAMES.index(owner) for owner in owners if owner is not None], nodes)
