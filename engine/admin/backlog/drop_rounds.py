"""Drops messages partition by partition: asks the owners, and drops those of partitions that no node owns.

A partition's owner drops its messages itself, since it may have them ready for a handler. Owners are read before and
after: a partition whose owner has changed is done again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.admin.backlog.drop_client import gather
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.owners import read_owners
from evenlane.engine.core.ports import LogMoved

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.admin.backlog.drop_client import DropProgress, DropRequest
    from evenlane.engine.admin.session import AdminSession

    OnProgress = Callable[[int], object]

_TIMEOUT_S = 15.0  # without progress; a node that has crashed stays the owner until its lease ends
_SILENT_S = 5.0  # a working node reports every second
_PAUSE_S = 0.5


class DropUnowned(Protocol):
    """Drops the messages of a partition that no node owns. `shared`: other subscriptions may need them, or settled
    ones are kept. Raises
    LogMoved if a node has taken the partition over.
    """

    async def __call__(self, partition: int, *, shared: bool) -> None: ...


class DropTally:
    """Running totals. `left` maps unfinished partitions to the reason."""

    def __init__(self, partitions: set[int], on_progress: OnProgress = lambda _dropped: None) -> None:
        self.on_progress = on_progress
        self.left = dict.fromkeys(partitions, "")
        self.by_nodes = self.by_command = 0
        self.busy: dict[str, int] = {}  # messages that were being handled, by node

    @property
    def dropped(self) -> int:
        return self.by_nodes + self.by_command

    @property
    def in_flight(self) -> int:
        return sum(self.busy.values())

    def add(self, node: str, word: DropProgress | None, owned: dict[int, str]) -> None:
        """Add the last report of a node, None if it gave none."""
        why = (
            f"node {node} doesn't answer" if word is None or not word.done else f"node {node} reported: {word.problem}"
        )
        if word is not None:
            self.by_nodes += word.dropped
            self.busy[node] = word.busy
            for partition in word.partitions:
                self.left.pop(partition, None)
        for partition in self.left:
            if owned.get(partition) == node:
                self.left[partition] = why


async def run_rounds(outside: AdminSession, tally: DropTally, ask: DropRequest, alone: DropUnowned) -> None:
    """Process each partition by its owner, or by `alone` if it has none; `shared` says whether other subscriptions may
    need the messages, or settled ones are kept. Partitions that fail stay in `left`.
    """
    clock = asyncio.get_running_loop().time
    progress, left = clock(), len(tally.left)
    while tally.left and clock() - progress < _TIMEOUT_S:
        owned = await _owners(outside)
        if any(partition in owned for partition in tally.left):
            await _ask(outside, tally, ask, owned)
        unowned = [partition for partition in tally.left if partition not in owned]
        shared = bool(unowned) and await outside.needs_settle_logs()
        moved: set[int] = set()
        for partition in unowned:
            try:
                await alone(partition, shared=shared)
            except LogMoved:
                moved.add(partition)  # a node takes it over
        owned = await _owners(outside) if unowned else {}
        for partition in unowned:
            if partition not in owned and partition not in moved:
                del tally.left[partition]
        if len(tally.left) < left:
            progress, left = clock(), len(tally.left)
        if tally.left:
            await asyncio.sleep(_PAUSE_S)


async def _owners(outside: AdminSession) -> dict[int, str]:
    return await read_owners(outside.etcd, outside.cluster, outside.cluster_config.partitions)


async def _ask(outside: AdminSession, tally: DropTally, ask: DropRequest, owned: dict[int, str]) -> None:
    nodes = {owned[partition] for partition in tally.left if partition in owned}
    connection = connections.bus(outside.settings, "evenlane backlog")
    try:
        await connection.open()
        words = await gather(
            connection, outside.cluster, outside.project, ask, nodes, _SILENT_S,
            lambda dropped: tally.on_progress(tally.dropped + dropped),
        )  # fmt: skip
    finally:
        await connection.close()
    for node in nodes:
        tally.add(node, words.get(node), owned)


def describe_rest(tally: DropTally) -> str:
    shown = ", ".join(map(str, sorted(tally.left)[:8])) + (", ..." if len(tally.left) > 8 else "")
    why = "; ".join(sorted({each for each in tally.left.values() if each})) or "their owners kept changing"
    return f"partitions {shown} could not be processed ({why}): try again"
