"""Whether the stream that stands under a lane's name is the one it was fed from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.message.log_fields import lane_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane

_log = structlog.get_logger(__name__)


async def verify(store: Store, lane: FedLane, on_replaced: Callable[[FedLane, LaneState], None]) -> bool:
    """Confirm with the leader that the stream is the one the lane was fed from; if it isn't, call `on_replaced` with
    the lane and the stream's state, reset the lane, and return False. Raises Lost.
    """
    incarnation = store.incarnation
    if lane.verified == incarnation:
        return True
    seen = lane.seen  # as of now: it may move on while the leader is asked
    state = await store.state(lane.id)
    high_at = await time_of(store, lane.id, seen.high, state)
    if lane.verified == incarnation:
        return True  # somebody else has found out meanwhile
    same = seen.same(state, high_at)
    if not same:
        _log.debug(
            "the stream was replaced or rolled back", **lane_fields(lane), last_sequence=state.last, known_to=lane.high
        )
        on_replaced(lane, state)
        lane.reset(state)
    lane.verified = incarnation
    return same


async def time_of(store: Store, lane: LaneId, high: int, state: LaneState) -> int | None:
    """The arrival time of the message at `high`; 0 if it is gone, None if there can't be one."""
    if high < state.first or high > state.last or high == 0:
        return None
    if high == state.last and state.at:
        return state.at
    found = (await store.get(lane, [high]))[0]
    return found.at if found is not None else 0
