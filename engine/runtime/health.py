"""Reads the condition of a node from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry.node_health import Condition

if TYPE_CHECKING:
    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.cluster.ownership.membership import Membership
    from evenlane.engine.node.node import Node

_SECOND = 1_000_000_000


def condition(
    node: Node, membership: Membership, lease: NodeLease, *, leads: bool, slots: int, indexed: int, loop_lag_s: float
) -> Condition:
    """Return the node's present condition. `slots` are the node's, `indexed` the messages that its queues know."""
    now = now_ns()
    return Condition(
        leader=leads and now < node.trusted_until,
        generation=max(0, membership.member.plan.done),
        partitions=node.cluster_config.partitions,
        epochs=membership.epochs,
        lease_age_s=(now - lease.renewed_at) / _SECOND,
        lease_left_s=(node.trusted_until - now) / _SECOND,
        settle_lag_s=node.settler.lag(now) / _SECOND,
        index_messages=indexed,
        payload_bytes=node.limits.used_bytes,
        payload_budget=node.limits.payload_bytes,
        slots=slots,
        slots_busy=node.workers.busy,
        in_flight=len(node.in_flight),
        pending_copies=node.failures.pending,
        connected=node.store.is_connected,
        loop_lag_s=loop_lag_s,
        projects=node.queues.projects,
        positions=node.locate_lanes(now),
    )
