"""What nodes tell, as one picture: each tenant once, whoever has parts of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.overview.aggregate import added, together
from evenlane.engine.admin.overview.messages import Rest
from evenlane.engine.admin.overview.rows import of_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.admin.overview.messages import Band, NodeOverview, Row


@dataclass(frozen=True)
class Tenant:
    """`state` and `qps` are those of its topic, None if it has none; `quota` is what all that told of it may take now,
    msg/s. Whether the topic was `deleted` its state doesn't say. `bands` from the most to the least urgent.
    """

    project: str
    state: str | None
    qps: float | None
    quota: float | None
    bands: list[Band]
    deleted: bool

    @cached_property
    def whole(self) -> Band:
        return together(self.bands)


class Merged(NamedTuple):
    """`tenants` the busiest first, `rest` those that aren't shown one by one."""

    tenants: list[Tenant]
    rest: Rest | None

    @property
    def whole(self) -> Band:
        return of_many([*(tenant.whole for tenant in self.tenants), *(self.rest.bands if self.rest else ())])

    @property
    def projects(self) -> int:
        return len(self.tenants) + (self.rest.projects if self.rest else 0)


def merged(answers: Sequence[NodeOverview], most: int) -> Merged:
    """Up to `most` tenants, whatever the order of the answers. A project that one node has among the rest is counted
    there: so `rest.projects` may count one more than once, and a tenant's figures may be short of that.
    """
    rows: dict[str, list[Row]] = {}
    for answer in answers:
        for row in answer.rows:
            rows.setdefault(row.project, []).append(row)
    tenants = sorted((_tenant(project, parts) for project, parts in rows.items()), key=_rank)
    beyond = tenants[most:]
    rests = [answer.rest for answer in answers if answer.rest is not None]
    if not rests and not beyond:
        return Merged(tenants, None)
    columns = zip(*(rest.bands for rest in rests), *(tenant.bands for tenant in beyond), strict=True)
    rest = Rest(sum(rest.projects for rest in rests) + len(beyond), [of_many(column) for column in columns])
    return Merged(tenants[:most], rest)


def of_node(answer: NodeOverview) -> Band:
    """All that it has."""
    rest = answer.rest.bands if answer.rest is not None else []
    return together([*(band for row in answer.rows for band in row.bands), *rest])


def partly_told(answers: Iterable[NodeOverview], tenants: Iterable[Tenant]) -> list[str]:
    """The nodes that may have more of a shown tenant among the rest."""
    projects = {tenant.project for tenant in tenants}
    return sorted(
        answer.node
        for answer in answers
        if answer.rest is not None and answer.rest.projects and projects - {row.project for row in answer.rows}
    )


def _tenant(project: str, parts: Sequence[Row]) -> Tenant:
    newest = max(parts, key=lambda row: (row.revision, row.deleted, row.state or "", row.qps or 0.0))
    quotas = [row.quota for row in parts if row.quota is not None]
    return Tenant(
        project,
        newest.state,
        newest.qps,
        added(quotas) if quotas and newest.state is not None else None,
        [together(column) for column in zip(*(row.bands for row in parts), strict=True)],
        newest.deleted,
    )


def _rank(tenant: Tenant) -> tuple[int, float, str]:
    whole = tenant.whole
    return -whole.backlog, -(whole.leaving or 0.0), tenant.project
