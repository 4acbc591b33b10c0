"""Snapshot of an environment for an overview: its nodes, its leader, and the owner of each partition."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import agree_cluster_config, no_such_environment
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.membership.records import LeaderRecord, NodeRecord

if TYPE_CHECKING:
    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.hashing import Layout


class ClusterSnapshot(NamedTuple):
    """State of an environment in etcd, in one subscription (empty: the unnamed one). `nodes` is keyed by id and
    includes owners without a node record; `owners` is keyed by partition.
    """

    env: str
    priorities: tuple[str, ...]
    partitions: int
    nodes: dict[str, NodeRecord]
    owners: dict[int, str]
    leader: str | None
    layout: Layout = "hashed"
    subscription: str = ""


async def read_config(etcd: Coordination, env: str) -> ClusterConfig:
    """Return the config of an existing environment. Raises EvenlaneError if the environment doesn't exist;
    CoordinationError.
    """
    if await etcd.get(names.key(env, "settings")) is None:
        raise no_such_environment(env)
    return await agree_cluster_config(etcd, env, {})


async def read_snapshot(etcd: Coordination, cluster: str, cluster_config: ClusterConfig) -> ClusterSnapshot:
    """Read the snapshot. Values that can't be decoded are skipped without a log entry, as the nodes log them. Raises
    CoordinationError.
    """
    records = RecordReader(cluster, lambda _reason: None)
    living, owning = names.key(cluster, "nodes", ""), names.key(cluster, "owners", "")
    listed, owned, leads = await asyncio.gather(
        etcd.list(living), etcd.list(owning), etcd.get(names.key(cluster, "leader"))
    )
    owners = records.owners(
        ((item.key.removeprefix(owning), item.value) for item in owned.items), cluster_config.partitions
    )
    nodes = {
        item.key.removeprefix(living): record
        for item in listed.items
        if (record := records.read(NodeRecord, item.key, item.value)) is not None
    }
    for node in owners.values():
        nodes.setdefault(node, NodeRecord())
    leader = records.read(LeaderRecord, leads.key, leads.value) if leads is not None else None
    return ClusterSnapshot(
        names.env_of(cluster),
        cluster_config.priorities,
        cluster_config.partitions,
        nodes,
        owners,
        leader.id if leader is not None else None,
        cluster_config.layout,
        names.subscription_of(cluster),
    )
