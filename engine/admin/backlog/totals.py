"""Counts what waits for a subscription in all projects, from the store alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.admin.backlog.scan import count_waiting, list_all_subjects, map_concurrently, read_lane_view
from evenlane.engine.base.names import SHARED_KINDS, LaneId

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.subscriber import Subscriber


class BacklogTotals(NamedTuple):
    """The numbers of messages that are due and wait, and of those that are delayed or wait for another attempt. Both
    include messages in flight.
    """

    waiting: int
    delayed: int


async def count_totals(store: Store, cluster_config: ClusterConfig, subscriber: Subscriber) -> BacklogTotals:
    """Count the subscription's backlog. It takes a request or two for each lane that has messages, and one for each
    queue in it. Raises Lost, Refused, ConfigError.
    """
    waiting = await _count(store, cluster_config, subscriber, ("lanes",))
    return BacklogTotals(waiting, await _count(store, cluster_config, subscriber, ("later", "again")))


async def count_skipped(store: Store, cluster_config: ClusterConfig, subscriber: Subscriber) -> int:
    """Count what a reset to new messages skips: those that are due and wait, and retries. Raises Lost, Refused,
    ConfigError.
    """
    return await _count(store, cluster_config, subscriber, ("lanes", "again"))


async def count_after_reset(store: Store, cluster_config: ClusterConfig, subscriber: Subscriber, at: int) -> int:
    """Count what a reset to `at` (unix ns) brings, again or for the first time. Raises Lost, Refused, ConfigError."""
    reset = max(store.now(), subscriber.chosen.reset + 1)
    again = subscriber._replace(chosen=replace(subscriber.chosen, since=at, reset=reset))
    return await _count(store, cluster_config, again, SHARED_KINDS)


async def _count(store: Store, cluster_config: ClusterConfig, subscriber: Subscriber, kinds: Collection[str]) -> int:
    async def count(lane: LaneId) -> int:
        subjects = await list_all_subjects(store, lane, cluster_config, subscriber)
        if not subjects:
            return 0
        view = await read_lane_view(store, lane, subscriber)
        if view.settled.watermark >= subjects[0].last:
            return 0
        return sum([await count_waiting(store, subject, view) for subject in subjects])

    numbers = range(cluster_config.partitions)
    lanes = [LaneId(kind, number) for kind in subscriber.kinds if kind in kinds for number in numbers]
    return sum(await map_concurrently(lanes, count))
