"""The statuses of the tenants of an overview. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.stats.forecast import UNKNOWN
from evenlane.engine.core.stats.wait_targets import target_of
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting
from evenlane.engine.core.status.judge import judge

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from evenlane.engine.admin.overview.merge import TenantOverview
    from evenlane.engine.admin.overview.messages import Band
    from evenlane.engine.core.status.status import Status

_SECOND = 1_000_000_000
_MEASURED_S = 30.0  # nodes measure rates over up to this time


class StatusContext(NamedTuple):
    """What a tenant's status depends on besides its own figures: the environment, its priorities, the time (unix ns),
    the projects with groups in partitions without an owner, who paused topics, by project, whether etcd has lost
    topics, and the subscription (empty: the unnamed one).
    """

    env: str
    priorities: Sequence[str]
    at: int
    unserved: Collection[str] = ()
    paused_by: Mapping[str, str] = {}
    has_lost_topics: bool = False
    subscription: str = ""


def judge_tenant(tenant: TenantOverview, context: StatusContext) -> list[Status]:
    """Return the statuses of a tenant, the most urgent first."""
    whole, project = tenant.whole, tenant.project
    waiting = tuple(
        Waiting(name, band.backlog, band.oldest_s, target_of(name))
        for name, band in zip(context.priorities, tenant.bands, strict=True)
    )
    since = None if tenant.failing_s is None else context.at - round(tenant.failing_s * _SECOND)
    return judge(StatusFacts(
        project, context.env, tenant.state, tenant.qps, waiting, rates_of(whole), whole.reasons,
        int(project in context.unserved), tenant.deleted, tenant.pushed, Failure(tenant.error, since),
        whole.gone_s, whole.never, context.paused_by.get(project, ""), is_lost=context.has_lost_topics,
        subscription=context.subscription,
    ))  # fmt: skip


def rates_of(band: Band) -> Rates:
    """Return the rates of a band; unknown if one of them is."""
    arriving, handled, failed, expired = band.arriving, band.handled, band.failed, band.expired
    if arriving is None or handled is None or failed is None or expired is None:
        return UNKNOWN
    return Rates(arriving, handled, failed, _MEASURED_S, band.dead or 0.0, expired)
