"""How a node is: what it owns, what its lease is worth, how full it is, and how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.clock import now_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.engine import Engine

_SECOND = 1_000_000_000


class Condition(NamedTuple):
    """`generation` is that of the plan it has carried out, `partitions` how many the environment has, `epochs` by
    partition those that it owns. `lease_age_s` since its last renewal was sent, `lease_left_s` until nothing may start
    any more, less than 0 if that is so; `settle_lag_s` for how long the oldest end of a message isn't durable,
    `loop_lag_s` the longest delay of the event loop lately. `slots_busy` are those in which a handler runs, `in_flight`
    the messages with a handler or about to be.
    """

    leader: bool
    generation: int
    partitions: int
    epochs: Mapping[int, int]
    lease_age_s: float
    lease_left_s: float
    settle_lag_s: float
    index_messages: int
    payload_bytes: int
    payload_budget: int
    slots: int
    slots_busy: int
    in_flight: int
    pending_copies: int
    connected: bool
    loop_lag_s: float
    projects: int


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
