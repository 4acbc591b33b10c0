"""Builds a node's answer from what it knows of its tenants. Pure and thread-safe: its input never changes."""

from __future__ import annotations

from math import isinf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from evenlane.engine.admin.overview.aggregate import merge_bands
from evenlane.engine.admin.overview.messages import RATES, Band, NodeOverview, ProcessVitals, Rest, Row
from evenlane.engine.base.rounding import to_thousandths
from evenlane.engine.telemetry.metric_names import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.tenants.backlog import TenantBacklog
    from evenlane.engine.telemetry.tenants.paces import Place
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Accepted

_SECOND = 1_000_000_000
MOST = 300
"""Rows per answer, independent of the number of metric labels."""


class NodeReading(NamedTuple):
    """Findings of the node's last round over its queues: see
    `evenlane.engine.telemetry.tenants.registry.TenantRegistry`. `reading` counts partitions whose backlog is still
    being read; `errors` has the last errors of projects; `failing` for how long (s) every attempt has failed.
    """

    bands: int
    table: Mapping[Place, TenantBacklog]
    quotas: Mapping[str, float]
    left_out: int
    reading: int = 0
    errors: Mapping[str, str] = {}
    failing: Mapping[str, float] = {}


def snapshot(
    tenants: TenantRegistry, reading: int = 0, errors: Mapping[str, str] = MappingProxyType({}), now: int = 0
) -> NodeReading:
    """Copy the registry's state at `now` (monotonic ns); call on the loop that changes it."""
    failing = {project: (now - since) / _SECOND for project, since in tenants.failing_since.items()}
    return NodeReading(
        len(tenants.priorities), tenants.table.copy(), tenants.quotas.copy(), tenants.left_out, reading, errors, failing
    )


def encode_rows(
    node: str,
    seen: NodeReading,
    condition: Condition | None,
    topic_of: Callable[[str], Accepted | None],
    most_bytes: int,
) -> bytes:
    """Encode the answer with as many rows as fit."""
    most, vital = MOST, _vital(condition)
    while True:
        busiest, rest = choose_projects(seen, most)
        rows = [_row(project, bands, seen, topic_of(project)) for project, bands in busiest]
        body = msgspec.json.encode(NodeOverview(node, rows, rest, vital, seen.reading))
        if len(body) <= most_bytes or not rows:
            return body
        most = len(rows) // 2


def choose_projects(seen: NodeReading, most: int) -> tuple[list[tuple[str, list[Band]]], Rest | None]:
    """Return up to `most` projects with their bands, busiest first, and the sum of all others, if any."""
    tenant_backlogs: dict[str, list[TenantBacklog | None]] = {}
    for (label, band), tenant_backlog in seen.table.items():
        tenant_backlogs.setdefault(label, [None] * seen.bands)[band] = tenant_backlog
    others = tenant_backlogs.pop(OTHER, None)
    order = sorted(tenant_backlogs, key=lambda label: _rank(label, tenant_backlogs[label]))
    beyond = [tenant_backlogs[label] for label in order[most:]]
    projects = seen.left_out + len(beyond)
    rest = None
    if projects or others:
        columns = zip(*(map(_band, each) for each in ([others] if others else []) + beyond), strict=True)
        rest = Rest(projects, [of_many(column) for column in columns] or [of_many([])] * seen.bands)
    return [(label, [_band(each) for each in tenant_backlogs[label]]) for label in order[:most]], rest


def of_many(bands: Iterable[Band]) -> Band:
    """Sum bands of several projects, for which no forecast is made."""
    return replace(merge_bands(bands), gone_s=None, never=False)


def _rank(label: str, tenant_backlogs: Sequence[TenantBacklog | None]) -> tuple[bool, int, float, str]:
    """Projects that fail or expire come first: they may have no backlog, and need somebody to look."""
    known = [each for each in tenant_backlogs if each is not None]
    rates = [each.rates for each in known if each.rates is not None]
    fine = not any(rate.failed or rate.expired for rate in rates)
    return fine, -sum(each.backlog for each in known), -sum(rate.leaving for rate in rates), label


def _band(tenant_backlog: TenantBacklog | None) -> Band:
    if tenant_backlog is None:
        return Band()
    rates, gone = tenant_backlog.rates, tenant_backlog.empty_in
    never = gone is not None and isinf(gone)
    return Band(
        backlog=tenant_backlog.backlog,
        in_flight=tenant_backlog.in_flight,
        oldest_s=to_thousandths(tenant_backlog.age_s) if tenant_backlog.backlog else None,
        **{name: None if rates is None else round(getattr(rates, name), 3) for name in RATES},
        gone_s=None if never else to_thousandths(gone),
        never=never,
        reasons=tenant_backlog.reasons,
    )


def _row(project: str, bands: list[Band], seen: NodeReading, accepted: Accepted | None) -> Row:
    error, failing_s = seen.errors.get(project, ""), to_thousandths(seen.failing.get(project))
    if accepted is None:
        return Row(project, bands, error=error, failing_s=failing_s)
    topic = accepted.topic
    quota = to_thousandths(seen.quotas.get(project))
    return Row(
        project, bands, accepted.revision, topic.state, topic.qps, quota, accepted.deleted, topic.push is not None,
        error, failing_s, accepted.active, topic.spread,
    )  # fmt: skip


def _vital(condition: Condition | None) -> ProcessVitals | None:
    if condition is None:
        return None
    return ProcessVitals(
        condition.generation,
        condition.slots,
        round(condition.lease_left_s, 3),
        round(condition.settle_lag_s, 3),
        round(condition.loop_lag_s, 4),
    )
