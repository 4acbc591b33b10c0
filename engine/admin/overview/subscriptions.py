"""Shows all subscriptions with how far each has come: which are behind, and which hold storage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.admin.backlog.scan import map_concurrently
from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.control.subscriptions.living_nodes import list_nodes
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.records import settle_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.ring.coordination.ports import Coordination


class SubscriptionRow(NamedTuple):
    """One subscription; `name` is None for the unnamed one. `behind` are the messages of the lanes after the position
    up to which it has settled all; `holds` are those that stay for it alone. Both are at most what is stored. None:
    NATS doesn't answer.
    """

    name: str | None
    state: str
    nodes: int
    behind: int | None
    holds: int | None


async def read_subscriptions(
    coordination: Coordination, store: Store, env: str, partitions: int, view: RegistryView
) -> list[dict[str, Any]]:
    """Return a document for each subscription, the unnamed one first; none if there is no named one. Delay streams
    aren't counted: they have no such position. Raises CoordinationError.
    """
    if not view.subscriptions:
        return []
    states = {"": "active"} | {name: view.subscriptions[name].state for name in sorted(view.subscriptions)}
    clusters = [names.cluster_name(env, name) for name in states]
    nodes = await asyncio.gather(*(list_nodes(coordination, cluster) for cluster in clusters))
    figures: Sequence[tuple[int | None, int | None]]
    try:
        figures = await _measure(store, partitions, {cluster: view.reset_of(cluster) for cluster in clusters})
    except (Lost, Refused):
        figures = [(None, None)] * len(clusters)
    rows = (
        SubscriptionRow(name or None, state, len(living), *measured)
        for (name, state), living, measured in zip(states.items(), nodes, figures, strict=True)
    )
    return [row._asdict() for row in rows]


async def _measure(store: Store, partitions: int, resets: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return for each cluster how many messages it is behind, and how many it alone holds. `resets` says when each was
    last reset. Raises Lost, Refused.
    """

    async def measure(partition: int) -> list[tuple[int, int]]:
        lane = LaneId("lanes", partition)
        state = await store.state(lane)
        positions = [await _read_position(store, lane, each, state, reset) for each, reset in resets.items()]
        return compare(positions, state.last, (await store.size(lane)).messages)

    lanes = await map_concurrently(range(partitions), measure)
    return [(sum(behind for behind, _ in each), sum(holds for _, holds in each)) for each in zip(*lanes, strict=True)]


async def _read_position(store: Store, lane: LaneId, cluster: str, state: LaneState, reset: int) -> int:
    """Return up to which sequence a cluster has settled all of a lane since its reset; what is removed counts as
    settled.
    """
    removed = max(0, state.first - 1)
    raw = await store.read_last_record(lane, cluster)
    try:
        log = fold([raw] if raw is not None else [])  # its watermark, raised by what it settles itself
    except settle_record.UnknownVersion:
        return removed
    if log.created != state.created or log.reset < reset:
        return removed
    return min(state.last, max(removed, log.settled.watermark))


def compare(positions: Sequence[int], last: int, stored: int) -> list[tuple[int, int]]:
    """Return for each position how far it is from the `last` sequence, and from the lowest of the others, if that is
    higher: so much could be removed without it. Both are at most `stored`, the number of messages: many sequences in
    between may be gone.
    """
    found = []
    for index, position in enumerate(positions):
        others = min([*positions[:index], *positions[index + 1 :]], default=last)
        found.append((min(stored, last - position), min(stored, max(0, others - position))))
    return found
