"""Snapshot of all figures at one moment, for writing them in another format."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.telemetry.tenants.fairness import FairnessSample

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes
    from evenlane.engine.core.stats.histogram import BucketCounts, Histogram
    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.node_view import NodeView
    from evenlane.engine.telemetry.tenants.backlog import TenantBacklog
    from evenlane.engine.telemetry.tenants.flows import TenantFlow
    from evenlane.engine.telemetry.tenants.paces import Place
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.engine.telemetry.tenants.waits import Key


class TenantFigures(NamedTuple):
    """Figures by tenant, see `TenantRegistry`: by label and band, by label, or by (label, band, reason)."""

    table: Mapping[Place, TenantBacklog] = {}
    counted: Mapping[Place, TenantFlow] = {}
    seconds: Mapping[Key, float] = {}
    message_seconds: Mapping[Key, float] = {}
    quotas: Mapping[str, float] = {}
    usage: FairnessSample = FairnessSample()
    left_out: int = 0
    round_s: float = 0.0


class Snapshot(NamedTuple):
    """Figures that don't change while they are written. `dwell` and `handling` are by band; `counters` are the node's,
    by name; `moves` are partition moves by kind; `refused` counts specs rejected at present, `refusals` all rejections
    by place; `troubles` are the present kinds; `blocked_s` is the total time for which the event loop was blocked.
    `desired_nodes` is the number of nodes for an autoscaler, None unless one reads it here. `subscription` is the
    node's; empty: the unnamed one. `subscriptions` are all of them, on a leader, if there are named ones.
    """

    env: str
    node: str
    version: str
    priorities: tuple[str, ...] = ()
    tenants: TenantFigures = TenantFigures()
    dwell: tuple[BucketCounts, ...] = ()
    handling: tuple[BucketCounts, ...] = ()
    condition: Condition | None = None
    counters: Mapping[str, int] = {}
    moves: Mapping[str, int] = {}
    refused: int = 0
    refusals: Mapping[str, int] = {}
    troubles: Collection[str] = ()
    blocked_s: float = 0.0
    desired_nodes: int | None = None
    subscription: str = ""
    subscriptions: tuple[RunningNodes, ...] = ()


def snapshot(view: NodeView) -> Snapshot:
    """Copy the figures, on the loop that changes them: a copy is cheap, writing the page isn't."""
    tenants, times = view.tenants, view.times
    refused, refusals = view.refused
    seen = Snapshot(
        view.settings.env, view.id, view.version, condition=view.condition(),
        counters=asdict(view.counters), moves=view.moves.copy(), refused=refused, refusals=refusals,
        troubles=view.troubles.current(), blocked_s=view.blocked_s,
        desired_nodes=view.desired_nodes, subscription=view.settings.subscription or "",
        subscriptions=view.subscriptions,
    )  # fmt: skip
    if tenants is None or times is None:
        return seen
    return seen._replace(
        priorities=tenants.priorities, tenants=of_tenants(tenants), dwell=_copy_counts(times.dwell),
        handling=_copy_counts(times.handling),
    )  # fmt: skip


def of_tenants(tenants: TenantRegistry) -> TenantFigures:
    waits = tenants.waits
    return TenantFigures(
        tenants.table.copy(), tenants.counted.copy(), waits.seconds.copy(), waits.message_seconds.copy(),
        tenants.quotas, tenants.usage.sample(), tenants.left_out, tenants.round_s,
    )  # fmt: skip


def _copy_counts(histograms: Iterable[Histogram]) -> tuple[BucketCounts, ...]:
    return tuple(histogram.copy_counts() for histogram in histograms)
