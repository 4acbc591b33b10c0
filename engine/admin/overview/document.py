"""Builds an overview in JSON types, for `/api/overview` and `evenlane top --json`. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.overview.aggregate import merge_bands
from evenlane.engine.admin.overview.merge import merge_overviews, of_node, partly_reported
from evenlane.engine.admin.overview.messages import RATES, Band
from evenlane.engine.admin.overview.rows import MOST
from evenlane.engine.admin.overview.status import StatusContext, judge_tenant
from evenlane.engine.base.durations import format_instant
from evenlane.engine.base.rounding import to_thousandths
from evenlane.engine.base.troubles import sentences
from evenlane.engine.core.status.words import main_reason
from evenlane.engine.errors import hint
from evenlane.ring.hashing import partition_of
from evenlane.ring.membership.handlers import explain_differences

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from evenlane.engine.admin.overview.merge import MergedOverview, TenantOverview
    from evenlane.engine.admin.overview.messages import NodeOverview, Rest
    from evenlane.engine.cluster.cluster_snapshot import ClusterSnapshot
    from evenlane.ring.membership.records import NodeRecord

_NAMED = 10  # nodes per sentence


def document(
    cluster: ClusterSnapshot,
    answers: Sequence[NodeOverview],
    at: int,
    most: int = MOST,
    paused_by: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Build the document. `answers` are those that arrived from the cluster's nodes; `at` is in unix ns; `paused_by`
    says who paused topics, by project.
    """
    whole = merge_overviews(answers, most)
    unserved = _find_unserved(cluster, whole.tenants)
    has_lost_topics = any("topics" in record.troubles for record in cluster.nodes.values())
    context = StatusContext(
        cluster.env, cluster.priorities, at, unserved, paused_by, has_lost_topics, cluster.subscription
    )
    return {
        "env": cluster.env,
        "at": format_instant(at),
        "priorities": [*cluster.priorities],
        "tenants": [_tenant(tenant, context) for tenant in whole.tenants],
        "left_out": None if whole.rest is None else _describe_rest(whole.rest, cluster.priorities),
        "nodes": _nodes(cluster, answers),
        "partitions": cluster.partitions,
        "unowned": _list_unowned(cluster),
        "totals": {"projects": whole.projects, **_moves(whole.whole)},
        "notes": [*_notes(cluster, answers, whole)],
    }


def _tenant(tenant: TenantOverview, context: StatusContext) -> dict[str, Any]:
    whole = tenant.whole
    status, *also = (status.describe() for status in judge_tenant(tenant, context))
    return {
        "project": tenant.project,
        "state": tenant.state,
        "deleted": tenant.deleted,
        "qps": tenant.qps,
        "quota_now": to_thousandths(tenant.quota),
        **_waits(whole),
        "reason": main_reason(whole.reasons),
        "status": status,
        "also": also,
        "priorities": _priorities(tenant.bands, context.priorities),
    }


def _find_unserved(cluster: ClusterSnapshot, tenants: Sequence[TenantOverview]) -> set[str]:
    """Return the projects with groups in partitions that have no owner."""
    unowned = frozenset(_list_unowned(cluster))
    if not unowned:
        return set()
    return {
        tenant.project
        for tenant in tenants
        for slot in range(min(tenant.groups, tenant.spread))
        if partition_of(tenant.project, slot, tenant.spread, cluster.partitions, cluster.layout) in unowned
    }


def _describe_rest(rest: Rest, priorities: Sequence[str]) -> dict[str, Any]:
    return {
        "projects": rest.projects,
        **_moves(merge_bands(rest.bands)),
        "priorities": _priorities(rest.bands, priorities),
    }


def _priorities(bands: Sequence[Band], names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "priority": name,
            **_waits(band),
            "reason": main_reason(band.reasons),
            "reasons": band.reasons,
            "gone_in_seconds": to_thousandths(band.gone_s),
            "never_gone": band.never,
        }
        for name, band in zip(names, bands, strict=True)
    ]


def _waits(band: Band) -> dict[str, Any]:
    return {"backlog": band.backlog, "oldest_seconds": to_thousandths(band.oldest_s), **_moves(band)}


def _moves(band: Band) -> dict[str, Any]:
    return {
        "backlog": band.backlog,
        "in_flight": band.in_flight,
        **{name: to_thousandths(getattr(band, name)) for name in RATES},
    }


def _nodes(cluster: ClusterSnapshot, answers: Sequence[NodeOverview]) -> list[dict[str, Any]]:
    by_node = {answer.node: answer for answer in answers}
    owned: dict[str, list[int]] = {}
    for partition, node in sorted(cluster.owners.items()):
        owned.setdefault(node, []).append(partition)
    return [
        {
            "id": node,
            "answered": node in by_node,
            **_record(record),
            "leader": node == cluster.leader,
            "partitions": owned.get(node, []),
            **_answer(by_node.get(node)),
        }
        for node, record in sorted(cluster.nodes.items())
    ]


def _record(record: NodeRecord) -> dict[str, Any]:
    """Return the node's own record in etcd, which it writes every few seconds."""
    has_record = bool(record.host or record.at)
    return {
        "http": record.http,
        "host": record.host,
        "version": record.version,
        "cpu": record.cpu if has_record else None,
        "troubles": record.troubles,
    }


def _answer(overview: NodeOverview | None) -> dict[str, Any]:
    moves = dict.fromkeys(_moves(Band())) if overview is None else _moves(of_node(overview))
    vital = overview.vital if overview is not None else None
    return {
        **moves,
        "generation": vital and vital.generation,
        "slots": vital and vital.slots,
        "lease_seconds": vital and vital.lease_s,
        "settle_lag_seconds": vital and vital.settle_lag_s,
        "loop_lag_seconds": vital and vital.loop_lag_s,
    }


def _list_unowned(cluster: ClusterSnapshot) -> list[int]:
    return [partition for partition in range(cluster.partitions) if partition not in cluster.owners]


# ---- notes on what the figures don't show


def _notes(cluster: ClusterSnapshot, answers: Sequence[NodeOverview], whole: MergedOverview) -> Iterator[str]:
    if not cluster.nodes:
        option = f" --subscription {cluster.subscription}" if cluster.subscription else ""
        who = f"for subscription {cluster.subscription!r} of" if cluster.subscription else "in"
        start = hint(f"run --handler MODULE:FUNCTION{option}", cluster.env)
        yield f"no node is running {who} environment {cluster.env!r}: {start} starts one"
        return
    if silent := sorted(cluster.nodes.keys() - {answer.node for answer in answers}):
        what = "its figures are" if len(silent) == 1 else "their figures are"
        yield f"{_name_nodes(silent)} did not answer: {what} missing"
    yield from sentences({node: record.troubles for node, record in cluster.nodes.items()})
    if differences := explain_differences(cluster.nodes):
        yield differences
    if unowned := _list_unowned(cluster):
        yield f"{len(unowned)} of {cluster.partitions} partitions have no owner: their backlog isn't known"
    for answer in sorted(answers, key=lambda answer: answer.node):
        if answer.reading:
            many = "a partition" if answer.reading == 1 else f"{answer.reading} partitions"
            yield f"node {answer.node} is still reading the backlog of {many}: more may wait there than is reported"
    if cluster.leader is None:
        yield "no node is the leader: until one is, nothing is planned and no change of a topic is accepted"
    if len(answers) > 1 and (partly := partly_reported(answers, whole.tenants)):
        counts, their = ("counts", "its") if len(partly) == 1 else ("count", "their")
        yield (
            f"{_name_nodes(partly)} {counts} {their} least busy projects together: a project shown here may have more"
            " messages there, which are left out"
        )


def _name_nodes(nodes: Collection[str]) -> str:
    listed = [*nodes]
    if len(listed) == 1:
        return f"node {listed[0]}"
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"nodes {', '.join(listed[:_NAMED])}{more}"
