"""Reads a project's backlog in one subscription from the store alone, as its streams minus their settle logs. Needs no
node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from evenlane.engine.base.names import LaneId
from evenlane.engine.control.subscriptions.lane_start import find_start
from evenlane.engine.core.lane.handoff_state import StreamIdentity
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.queue.subscriber import UNNAMED
from evenlane.engine.core.wire.queue_subjects import Subject, parse
from evenlane.engine.node.settle.settle_log_reader import read_settle_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Head, LaneState, Store
    from evenlane.engine.core.queue.subscriber import Subscriber

PAGE = 1_000  # messages of one subject per read
_AT_ONCE = 16

T = TypeVar("T")
R = TypeVar("R")


class LaneView(NamedTuple):
    """A lane, and its settled messages."""

    id: LaneId
    state: LaneState
    settled: SettledSet
    subscriber: Subscriber = UNNAMED

    @property
    def last_settled(self) -> int:
        """Last settled sequence, 0 if none."""
        return max([self.settled.watermark, *(last for _, last in self.settled.above())])


async def list_subjects(
    store: Store,
    cluster_config: ClusterConfig,
    project: str,
    priorities: Collection[str],
    partitions: Iterable[int] | None = None,
    subscriber: Subscriber = UNNAMED,
) -> list[Subject]:
    """Return the subjects that hold messages of the project for the subscription, settled or not. Raises Lost,
    Refused.
    """
    if not subscriber.chosen.takes_project(project):
        return []
    numbers = range(cluster_config.partitions) if partitions is None else partitions

    async def one(lane: LaneId) -> list[Subject]:
        found = await store.count_by_subject(lane, project)
        return list(parse(lane, found.counts, found.last, priorities))

    lanes = [LaneId(kind, number) for number in numbers for kind in subscriber.kinds]
    return [subject for found in await map_concurrently(lanes, one) for subject in found]


async def list_all_subjects(
    store: Store, lane: LaneId, cluster_config: ClusterConfig, subscriber: Subscriber
) -> list[Subject]:
    """Return the lane's subjects of all projects whose messages the subscription gets. Raises Lost, Refused."""
    found = await store.count_by_subject(lane, "*")
    subjects = parse(lane, found.counts, found.last, cluster_config.priorities)
    return [subject for subject in subjects if subscriber.chosen.takes_project(subject.project)]


async def read_lane_view(store: Store, lane: LaneId, subscriber: Subscriber = UNNAMED) -> LaneView:
    """Return the lane's view. `settled` is empty unless the settle log belongs to the present stream. If the
    subscription was reset, and no owner of the lane has followed yet, it has what comes before the start. Raises Lost,
    Refused, ConfigError.
    """
    log = (await read_settle_log(store, lane)).state
    state = await store.state(lane)
    if subscriber.must_restart(lane, log):
        start = 1 if lane.kind == "later" else await find_start(store, lane, state, subscriber.chosen.since)
        return LaneView(lane, state, SettledSet(start - 1), subscriber)
    high_at = None
    if state.first <= log.high <= state.last and log.high:
        found = (await store.get(lane, [log.high]))[0]
        high_at = found.at if found is not None else 0
    same = log.created and StreamIdentity(log.created, log.high, log.high_at, 0).is_same(state, high_at)
    return LaneView(lane, state, log.settled if same else SettledSet(), subscriber)


async def views(store: Store, subjects: Iterable[Subject], subscriber: Subscriber = UNNAMED) -> dict[LaneId, LaneView]:
    """Return the view of each lane of these subjects."""
    lanes = sorted({subject.lane for subject in subjects})
    return dict(
        zip(lanes, await map_concurrently(lanes, lambda lane: read_lane_view(store, lane, subscriber)), strict=True)
    )


async def pages(store: Store, subject: Subject, start: int, last: int) -> AsyncIterator[list[Head]]:
    """Yield the subject's messages from `start` to `last`, settled or not, without bodies."""
    while start <= last:
        page = await store.heads(subject.lane, subject.name, start, PAGE)
        yield [head for head in page if head.sequence <= last]
        if len(page) < PAGE:
            return
        start = page[-1].sequence + 1


async def iter_waiting(store: Store, subject: Subject, view: LaneView) -> AsyncIterator[list[Head]]:
    """Yield the messages that waited, or were being handled, when the subject was counted."""
    settled = view.settled
    async for page in pages(store, subject, settled.watermark + 1, subject.last):
        yield [head for head in page if head.sequence not in settled and view.subscriber.takes(subject.lane, head)]


async def count_waiting(store: Store, subject: Subject, view: LaneView) -> int:
    """Count the waiting messages. The stream may still hold settled messages, so each message up to the last settled
    one is checked, and the store counts the messages after that one.

    In a delay stream, each message is checked for a named subscription. In a lane it counts replays of the unnamed one
    until it has passed over them.
    """
    if view.subscriber.is_named and subject.lane.kind == "later":
        return sum([len(page) async for page in iter_waiting(store, subject, view)])
    last = view.last_settled
    if not last:
        return subject.held
    count = 0
    async for page in pages(store, subject, view.settled.watermark + 1, last):
        count += sum(head.sequence not in view.settled and view.subscriber.takes(subject.lane, head) for head in page)
    return count + await store.count(subject.lane, subject.name, last + 1)


async def map_concurrently(items: Iterable[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Run `work` for all items, up to `_AT_ONCE` at a time. Returns the results in order."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> R:
        async with gate:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
