"""Reads the owners of partitions, and the messages that previous owners still handle, from etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.membership.records import HeldRecord, NodeRecord

if TYPE_CHECKING:
    from evenlane.ring.coordination.ports import Coordination


async def read_owners(etcd: Coordination, cluster: str, partitions: int) -> dict[int, str]:
    """Return the owning node by partition. Raises CoordinationError."""
    prefix = names.key(cluster, "owners", "")
    items = (await etcd.list(prefix)).items
    return RecordReader(cluster).owners(((item.key.removeprefix(prefix), item.value) for item in items), partitions)


async def read_troubles(etcd: Coordination, cluster: str) -> dict[str, dict[str, str]]:
    """Return the trouble sentences by node and kind, for nodes that can't do their work. Raises CoordinationError."""
    prefix, records = names.key(cluster, "nodes", ""), RecordReader(cluster, lambda _reason: None)
    found = {
        item.key.removeprefix(prefix): record.troubles
        for item in (await etcd.list(prefix)).items
        if (record := records.read(NodeRecord, item.key, item.value)) is not None
    }
    return {node: sentences for node, sentences in found.items() if sentences}


async def read_handoffs(etcd: Coordination, cluster: str, partition: int) -> dict[str, set[int]]:
    """Return, by kind of stream, the sequences that previous owners still handle or have handled but not yet settled.

    Only those owners may settle them. Raises CoordinationError.
    """
    records = RecordReader(cluster)
    found: dict[str, set[int]] = {kind: set() for kind in names.LANE_KINDS}
    for item in (await etcd.list(names.key(cluster, "held", partition, ""))).items:
        record = records.read(HeldRecord, item.key, item.value)
        for kind, lane in (record.lanes if record is not None else {}).items():
            found.setdefault(kind, set()).update(lane.running, lane.done)
    return found
