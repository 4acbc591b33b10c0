"""Waits until nodes own the partitions that are planned for them.

A node that becomes ready among others reports the partitions it has at that moment: the first one has all, and then
releases most. The keys in etcd are therefore read instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cli.run.lifeline import NodeReady
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.membership.records import DoneRecord, OwnerRecord, PlanRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import R

_PAUSE_S = 0.1


async def wait_until_ready(
    coordination: Coordination, cluster: str, nodes: Collection[str], within_s: float
) -> NodeReady:
    """Return how many partitions these nodes own together, and the newest generation carried out by any of them.

    Waits until each node has carried out its plan and owns all its partitions, at most `within_s` seconds. Raises
    CoordinationError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        planned = dict(await _records(coordination, cluster, "plan", PlanRecord))
        done = dict(await _records(coordination, cluster, "done", DoneRecord))
        owners = dict(await _records(coordination, cluster, "owners", OwnerRecord))
        owned = sum(owner.id in nodes for owner in owners.values())
        if loop.time() >= deadline or _is_settled(planned, done, nodes, owned):
            return NodeReady(owned, max((done[node].generation for node in nodes if node in done), default=0), cluster)
        await asyncio.sleep(_PAUSE_S)


def _is_settled(
    planned: dict[str, PlanRecord], done: dict[str, DoneRecord], nodes: Collection[str], owned: int
) -> bool:
    return all(
        node in planned and node in done and done[node].generation >= planned[node].generation for node in nodes
    ) and owned == sum(len(planned[node].partitions) for node in nodes)


async def _records(coordination: Coordination, cluster: str, what: str, kind: type[R]) -> Iterator[tuple[str, R]]:
    """Return the records by the last part of their keys. Invalid ones are skipped."""
    prefix = names.key(cluster, what) + "/"
    listing = await coordination.list(prefix)
    records = RecordReader(cluster, lambda _reason: None)  # the nodes log it
    return (
        (item.key.removeprefix(prefix), record)
        for item in listing.items
        if (record := records.read(kind, item.key, item.value))
    )
