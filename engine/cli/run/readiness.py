"""What nodes own, once they have carried out what is planned for them.

A node that becomes ready among others says what it had at that moment: the first one all partitions, of which it
then gives most away. So the keys in etcd are asked, which know better.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.cli.run.lifeline import Ready
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.ring.membership.records import DoneRecord, OwnerRecord, PlanRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.records import R

_PAUSE_S = 0.1


async def wait_until_ready(coordination: Coordination, env: str, nodes: Collection[str], within_s: float) -> Ready:
    """How many partitions these nodes own together, and the newest generation that one of them has carried out.

    Waits until each of them has carried out its plan and no partition of theirs is still to be had, but no longer
    than `within_s` seconds. Raises CoordinationError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        planned = dict(await _records(coordination, env, "plan", PlanRecord))
        done = dict(await _records(coordination, env, "done", DoneRecord))
        owners = dict(await _records(coordination, env, "owners", OwnerRecord))
        owned = sum(owner.id in nodes for owner in owners.values())
        if loop.time() >= deadline or _settled(planned, done, nodes, owned):
            return Ready(owned, max((done[node].generation for node in nodes if node in done), default=0))
        await asyncio.sleep(_PAUSE_S)


def _settled(planned: dict[str, PlanRecord], done: dict[str, DoneRecord], nodes: Collection[str], owned: int) -> bool:
    return all(
        node in planned and node in done and done[node].generation >= planned[node].generation for node in nodes
    ) and owned == sum(len(planned[node].partitions) for node in nodes)


async def _records(coordination: Coordination, env: str, what: str, kind: type[R]) -> Iterator[tuple[str, R]]:
    """By the last part of their keys. What is no record is nobody's."""
    prefix = names.key(env, what) + "/"
    listing = await coordination.list(prefix)
    records = RecordReader(env, lambda _reason: None)  # the nodes say it
    return (
        (item.key.removeprefix(prefix), record)
        for item in listing.items
        if (record := records.read(kind, item.key, item.value))
    )
