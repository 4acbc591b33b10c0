"""Builds the view of `evenlane scaling` from etcd: the nodes' loads, the leader's record, and a decision made now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from evenlane.engine.base import names
from evenlane.engine.base.durations import format_instant
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_snapshot import read_config, read_snapshot
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.scaling.configured import bounds_of, policy_of
from evenlane.engine.control.scaling.decision import ScalingState, decide
from evenlane.engine.control.scaling.need import explain_blocked
from evenlane.engine.control.scaling.policy import Observation
from evenlane.engine.control.scaling.record import OFF, ScalingRecord, find_conflict
from evenlane.engine.control.scaling.validity import check_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.cluster_snapshot import ClusterSnapshot
    from evenlane.ring.membership.records import NodeRecord

_SECOND = 1_000_000_000


async def read(settings: Settings) -> dict[str, Any]:
    """Read the view. Raises EvenlaneError if there is no such environment; Unreachable."""
    with connections.translate_errors():
        etcd = connections.etcd(settings)
        try:
            config = await read_config(etcd, settings.env)
            cluster = await read_snapshot(etcd, settings.env, config)
            key = names.key(settings.env, "scaling")
            found = await etcd.get(key)
            record = None if found is None else RecordReader(settings.env).read(ScalingRecord, key, found.value)
            return view(settings, cluster, record, time.time())
        finally:
            await etcd.close()


def view(settings: Settings, cluster: ClusterSnapshot, record: ScalingRecord | None, now: float) -> dict[str, Any]:
    """Build the document. The decision is made by these settings, after what the leader has recorded; `now` is in
    unix s.
    """
    nodes, invalid = check_records(cluster.nodes)
    fit = {name: node for name, node in nodes.items() if node.is_fit}
    state = record.state if record is not None else ScalingState()
    replicas = state.replicas or len(fit) or (1 if state.replicas is None else 0)
    seen = Observation(fit, replicas, cluster.partitions)
    decision = decide(policy_of(settings), bounds_of(settings), seen, state, now)
    return {
        "env": cluster.env,
        "policy": settings.scaling_policy,
        "target": settings.scaling_target if settings.scaling_policy == "need" else None,
        "replicas": replicas,
        "desired": decision.replicas,
        "why": decision.why,
        "blocked": explain_blocked(fit),
        "nodes": [
            {
                "id": name, "cpu": node.cpu, "cores": node.cores, "projects": node.projects, "slots": node.slots,
                "load": None if node.load is None else asdict(node.load), "scaling": node.scaling,
                "leaving": node.leaving,
            }
            for name, node in sorted(cluster.nodes.items())
        ],
        "recorded": None if record is None else _recorded(record),
        "notes": [
            *_notes(cluster, nodes, record),
            *(f"node {name} doesn't count for scaling: {reason}" for name, reason in sorted(invalid.items())),
        ],
    }  # fmt: skip


def _recorded(record: ScalingRecord) -> dict[str, Any]:
    changed = record.changed_at
    return {
        "mode": record.mode, "policy": record.policy, "by": record.by, "at": _instant(record.at),
        "desired": record.desired, "why": record.why, "error": record.error,
        "changed_at": None if changed is None else _instant(changed),
    }  # fmt: skip


def _instant(seconds: float) -> str:
    return format_instant(int(seconds * _SECOND))


def _notes(cluster: ClusterSnapshot, nodes: Mapping[str, NodeRecord], record: ScalingRecord | None) -> Iterator[str]:
    modes = {node.scaling for node in nodes.values()} - {OFF}
    leads = nodes.get(cluster.leader) if cluster.leader is not None else None
    if not modes:
        yield "no node has the setting scaling: nothing changes the number of nodes"
    elif conflict := find_conflict(nodes):
        yield conflict
    elif leads is not None and leads.scaling == OFF:
        yield f"node {cluster.leader} leads and has scaling = off: as long as it leads, nothing is scaled"
    if record is not None and record.error:
        yield f"the last look of node {record.by} has failed: {record.error}"
