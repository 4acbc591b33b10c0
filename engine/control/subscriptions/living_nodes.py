"""Finds the living nodes of clusters, and those of releases that know no subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.core.records import settle_record
from evenlane.ring.membership.records import SETTLE_LOG, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.ring.coordination.ports import Coordination

_MOST_NAMED = 10  # in a sentence


async def list_nodes(coordination: Coordination, cluster: str) -> list[str]:
    """Return the ids of a cluster's living nodes. Raises CoordinationError."""
    prefix = names.key(cluster, "nodes", "")
    return [item.key.removeprefix(prefix) for item in (await coordination.list(prefix)).items]


async def find_older(coordination: Coordination, clusters: Iterable[str]) -> list[str]:
    """Return the living nodes of releases that would remove messages which subscriptions need. Values that can't be
    decoded are skipped without a log entry, as the nodes log them. Raises CoordinationError.
    """
    found = []
    for cluster in clusters:
        prefix, records = names.key(cluster, "nodes", ""), RecordReader(cluster, lambda _reason: None)
        for item in (await coordination.list(prefix)).items:
            record = records.read(NodeRecord, item.key, item.value)
            if record is not None and record.reads.get(SETTLE_LOG, 1) < settle_record.SHARED_VERSION:
                found.append(item.key.removeprefix(prefix))
    return found


def describe_nodes(nodes: Sequence[str]) -> str:
    """Name nodes in a sentence."""
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {name_some(nodes)}"


def name_some(each: Sequence[object]) -> str:
    """List things in a sentence: the first of them, and how many more there are."""
    more = f" and {len(each) - _MOST_NAMED:,} more" if len(each) > _MOST_NAMED else ""
    return f"{', '.join(map(str, each[:_MOST_NAMED]))}{more}"
