"""The condition of a node, read from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.telemetry.node_health import Condition

if TYPE_CHECKING:
    from evenlane.engine.runtime.engine import Engine

_SECOND = 1_000_000_000


def condition(engine: Engine) -> Condition | None:
    """Of this moment; None between two terms, when there is neither a lease nor a node."""
    node, membership, lease, facts = engine.node, engine.membership, engine.lease, engine.facts
    if node is None or membership is None or lease is None or facts is None:
        return None
    now = now_ns()
    return Condition(
        leader=engine.leads and now < node.trusted_until,
        generation=max(0, membership.member.done),
        partitions=facts.partitions,
        epochs=membership.epochs,
        lease_age_s=(now - lease.renewed_at) / _SECOND,
        lease_left_s=(node.trusted_until - now) / _SECOND,
        settle_lag_s=node.settler.lag(now) / _SECOND,
        index_messages=engine.tenants.indexed if engine.tenants is not None else 0,
        payload_bytes=node.limits.held,
        payload_budget=node.limits.payload_bytes,
        slots=engine.settings.concurrency,
        slots_busy=node.workers.busy,
        in_flight=len(node.in_flight),
        pending_copies=node.outcomes.pending,
        connected=node.store.connected,
        loop_lag_s=engine.loop_lag.seconds,
        projects=node.queues.projects,
    )
