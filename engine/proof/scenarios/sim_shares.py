"""How the simulator's nodes come to their parts of the topics: as the product does, or, as controls, far worse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.node.queues.quota_share import WHOLE, node_share
from evenlane.engine.proof.scenarios.sim_rounds import Leading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.node.queues.quota_share import NodeShare
    from evenlane.engine.proof.scenarios.arm import Quotas
    from evenlane.engine.proof.scenarios.load import Load, Tenant
    from evenlane.engine.proof.scenarios.placed import Placed
    from evenlane.engine.proof.scenarios.sim_node import SimNode
    from evenlane.engine.proof.scenarios.sim_wire import Wire


def begin(quotas: Quotas, load: Load, where: Placed, nodes: Sequence[SimNode], wire: Wire) -> None:
    """Tell all schedulers their rules, and put on the wire whatever follows."""
    for node in nodes:
        for tenant in load.tenants:
            own = _own(tenant, where, node.number)
            node.knows(tenant, own)
            node.configure(tenant.name, WHOLE if quotas == "whole" else own.part, 0)
    if quotas == "shared" and len(nodes) > 1:
        Leading(nodes, wire).begin()


def _own(tenant: Tenant, where: Placed, node: int) -> NodeShare:
    """What its groups bring a node of the topic."""
    mine, partitions = where.partitions[node], len(where.owners)
    return node_share(tenant.name, tenant.topic, (), mine.__contains__, partitions)
