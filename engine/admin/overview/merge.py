"""Merges the answers of nodes: each tenant once, however many nodes have parts of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.overview.aggregate import add_rates, merge_bands
from evenlane.engine.admin.overview.messages import Rest
from evenlane.engine.admin.overview.rows import of_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.admin.overview.messages import Band, NodeOverview, Row


@dataclass(frozen=True)
class TenantOverview:
    """A tenant. `state` and `qps` are its topic's, None if it has none; `quota` is the sum of what the answering nodes
    may take now, in msg/s. The fields from `deleted` on are those of `Row`. `deleted` says whether the topic was
    deleted, which `state` doesn't show. `bands` run from most to least urgent.
    """

    project: str
    state: str | None
    qps: float | None
    quota: float | None
    bands: list[Band]
    deleted: bool
    pushed: bool = False
    error: str = ""
    failing_s: float | None = None
    groups: int = 0
    spread: int = 1

    @cached_property
    def whole(self) -> Band:
        return merge_bands(self.bands)


class MergedOverview(NamedTuple):
    """All tenants, busiest first; `rest` are those not shown individually."""

    tenants: list[TenantOverview]
    rest: Rest | None

    @property
    def whole(self) -> Band:
        return of_many([*(tenant.whole for tenant in self.tenants), *(self.rest.bands if self.rest else ())])

    @property
    def projects(self) -> int:
        return len(self.tenants) + (self.rest.projects if self.rest else 0)


def merge_overviews(answers: Sequence[NodeOverview], most: int) -> MergedOverview:
    """Merge into at most `most` tenants, whatever the order of the answers. If a node counts a project in its rest,
    that part stays in the rest: `rest.projects` may therefore count a project more than once, and a tenant's figures
    may be too low by that part.
    """
    rows: dict[str, list[Row]] = {}
    for answer in answers:
        for row in answer.rows:
            rows.setdefault(row.project, []).append(row)
    tenants = sorted((_tenant(project, parts) for project, parts in rows.items()), key=_rank)
    beyond = tenants[most:]
    rests = [answer.rest for answer in answers if answer.rest is not None]
    if not rests and not beyond:
        return MergedOverview(tenants, None)
    columns = zip(*(rest.bands for rest in rests), *(tenant.bands for tenant in beyond), strict=True)
    rest = Rest(sum(rest.projects for rest in rests) + len(beyond), [of_many(column) for column in columns])
    return MergedOverview(tenants[:most], rest)


def of_node(answer: NodeOverview) -> Band:
    """Return the sum of the node's figures."""
    rest = answer.rest.bands if answer.rest is not None else []
    return merge_bands([*(band for row in answer.rows for band in row.bands), *rest])


def partly_reported(answers: Iterable[NodeOverview], tenants: Iterable[TenantOverview]) -> list[str]:
    """Return the nodes that may have more of a shown tenant in their rest."""
    projects = {tenant.project for tenant in tenants}
    return sorted(
        answer.node
        for answer in answers
        if answer.rest is not None and answer.rest.projects and projects - {row.project for row in answer.rows}
    )


def _tenant(project: str, parts: Sequence[Row]) -> TenantOverview:
    newest = max(parts, key=lambda row: (row.revision, row.deleted, row.state or "", row.qps or 0.0))
    quotas = [row.quota for row in parts if row.quota is not None]
    return TenantOverview(
        project,
        newest.state,
        newest.qps,
        add_rates(quotas) if quotas and newest.state is not None else None,
        [merge_bands(column) for column in zip(*(row.bands for row in parts), strict=True)],
        newest.deleted,
        newest.pushed,
        next((row.error for row in sorted(parts, key=_last_failed) if row.error), ""),
        min((row.failing_s for row in parts if row.failing_s is not None), default=None),
        newest.groups,
        newest.spread,
    )


def _last_failed(row: Row) -> tuple[float, str]:
    """Put the node first that has the highest rate of failed attempts: its error is the one to show."""
    return -sum(band.failed or 0.0 for band in row.bands), row.error


def _rank(tenant: TenantOverview) -> tuple[bool, int, float, str]:
    whole = tenant.whole
    return not (whole.failed or whole.expired), -whole.backlog, -(whole.leaving or 0.0), tenant.project
