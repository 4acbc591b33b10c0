"""Answers, for a node, whether its partitions hold any message of a group.

A group is held as long as a stream has a message of it that is not durably settled by each subscription. One inspection
thus finds messages that wait, run, are retried, are due next month, or were put and haven't been delivered yet. The
lane is inspected before the delay stream, and both before the retries of other subscriptions, because a retry is stored
before its original is settled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.records.group_gc_messages import GroupReply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.settled_set import SettledSet
    from evenlane.engine.core.records.group_gc_messages import GroupRequest
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.partition import Partition

_SLICE = 200  # queues inspected per turn of the loop
_AT_ONCE = 16  # partitions inspected at once
_FEW = 2  # projects; for more of them it is cheaper to read all subjects at once
_MOST_SETTLED = 1_000  # messages of one subject that may be settled and not removed yet


class GroupInspector:
    """Inspects the partitions of a node. The reply leaves out partitions that can't be inspected."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def inspect(self, ask: GroupRequest) -> GroupReply:
        requested = {each.project: frozenset(each.groups) for each in ask.wanted}
        partitions = {n: each for n, each in self._node.partitions.items() if each.opened}
        full = await self._find_known(requested)
        left = {project: groups - full[project] for project, groups in requested.items()}
        left = {project: groups for project, groups in left.items() if groups}
        looked = await self._inspect_streams(partitions, left, full) if ask.deep and left else partitions
        epochs = {n: partition.lane.epoch for n, partition in looked.items() if self._is_mine(n, partition)}
        return GroupReply(
            ask.number, self._node.id, epochs, {name: sorted(groups) for name, groups in full.items() if groups}
        )

    def _is_mine(self, number: int, partition: Partition) -> bool:
        node = self._node
        return node.partitions.get(number) is partition and partition.opened and now_ns() < node.trusted_until

    # ---- the node's memory

    async def _find_known(self, requested: Mapping[str, frozenset[int]]) -> dict[str, set[int]]:
        full: dict[str, set[int]] = {project: set() for project in requested}
        for message in self._node.in_flight:
            if message.group in requested.get(message.project, ()):
                full[message.project].add(message.group)
        for project, groups in requested.items():
            for number, queue in enumerate(list(self._node.queues.of_project(project)), start=1):
                if queue.group in groups and queue.backlog:
                    full[project].add(queue.group)
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
        return full

    # ---- the streams

    async def _inspect_streams(
        self, partitions: Mapping[int, Partition], requested: Mapping[str, frozenset[int]], full: dict[str, set[int]]
    ) -> dict[int, Partition]:
        """Inspect streams and add the groups found to `full`. Returns the partitions that could be inspected."""
        some = asyncio.Semaphore(_AT_ONCE)

        async def look(partition: Partition) -> bool:
            async with some:
                try:
                    for lane in partition.lanes:
                        await self._look(lane, requested, full)
                    await self._look_at_retries(partition.number, requested, full)
                except (Lost, Refused):
                    return False
                return True

        seen = await asyncio.gather(*map(look, partitions.values()))
        return {n: partition for (n, partition), done in zip(partitions.items(), seen, strict=True) if done}

    async def _look(self, lane: Lane, requested: Mapping[str, frozenset[int]], full: dict[str, set[int]]) -> None:
        """Raises Lost, also if the lane was handed over or replaced meanwhile."""
        generation = lane.generation
        needed: dict[str, list[SettledSet] | None] = {}  # what has been settled by all that get a project's messages
        for subject, count in (await self._counts(lane, requested)).items():
            words = subject.split(".")
            project, group = words[3], names.number(words[4])
            if group is None or group not in requested.get(project, ()) or group in full[project] or not count:
                continue
            if project not in needed:
                logs = await self._node.bound.read_logs(lane, project)
                needed[project] = None if logs is None else [lane.settled, *(log.settled for log in logs)]
            if not await self._is_all_settled(lane, subject, count, needed[project]):
                full[project].add(group)
        if lane.fenced or lane.generation != generation:
            raise Lost("the lane was handed off or replaced")

    async def _look_at_retries(
        self, partition: int, requested: Mapping[str, frozenset[int]], full: dict[str, set[int]]
    ) -> None:
        """Look at the streams of retries of other subscriptions. Raises Lost."""
        node, lane = self._node, LaneId("again", partition)
        if (others := node.bound.others) is None:
            raise Lost("nobody knows which subscriptions there are")
        for cluster in others:
            for project, groups in requested.items():
                for subject in (await node.store.count_by_subject(lane, project, cluster)).counts:
                    if (group := names.number(subject.split(".")[4])) in groups:
                        full[project].add(group)

    async def _counts(self, lane: Lane, requested: Mapping[str, frozenset[int]]) -> dict[str, int]:
        store = self._node.store
        if len(requested) > _FEW:
            return await store.counts(lane.id)
        counts: dict[str, int] = {}
        for project in requested:
            counts |= (await store.count_by_subject(lane.id, project)).counts
        return counts

    async def _is_all_settled(self, lane: Lane, subject: str, count: int, settled: Sequence[SettledSet] | None) -> bool:
        """Whether all messages of a subject, `count` in all, are settled by all subscriptions that get them. None: what
        they have settled isn't known. False if fewer are found than were counted: a replica lags, or some were removed
        just now. The next look will tell.
        """
        store, start = self._node.store, 1
        if settled is None:
            return False
        if count > _MOST_SETTLED and self._node.bound.is_shared and lane.id.kind == "lanes":
            start = min(each.watermark for each in settled) + 1  # many wait for their removal
            count = await store.count(lane.id, subject, start)
        if count > _MOST_SETTLED:
            return False
        found = await store.scan(lane.id, subject, start, count) if count else []
        return len(found) >= count and all(sequence in each for sequence in found for each in settled)
