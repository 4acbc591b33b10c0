"""Verifies that the stream under a lane's name is the one that the lane was fed from."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import structlog

from evenlane.engine.core.message.log_fields import lane_fields

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.signals.events import NodeEvents

_log = structlog.get_logger(__name__)


class StreamVerifier:
    """Verifies streams for all parts that depend on them, since any of these may be the first to notice a
    replacement.
    """

    def __init__(self, store: Store, settlement: MessageSettlement, events: NodeEvents) -> None:
        self._store, self._settlement, self._events = store, settlement, events

    async def verify(self, lane: Lane) -> None:
        """Confirm with the stream's leader that the stream is the one that the lane was fed from. If it isn't, the lane
        is reset, and its feeds begin again. Raises Lost.
        """
        store = self._store
        incarnation = store.incarnation
        if lane.verified == incarnation:
            return
        seen = lane.seen  # a snapshot: it may advance while the leader is asked
        state = await store.state(lane.id)
        high_at = await time_of(store, lane.id, seen.high, state)
        if lane.verified == incarnation:
            return  # another part has found out meanwhile
        if not seen.is_same(state, high_at):
            _log.debug(
                "the stream was replaced or rolled back", **lane_fields(lane), last_sequence=state.last,
                known_to=lane.high,
            )  # fmt: skip
            fed = cast("FedLane", lane)  # all lanes of a node are; the settling parts use the base class only
            self._settlement.count_replaced(fed, state)
            fed.reset(state)
            fed.verified = incarnation
            self._events.on_stream_replaced(fed)
        lane.verified = incarnation


async def time_of(store: Store, lane: LaneId, high: int, state: LaneState) -> int | None:
    """The arrival time of the message with the sequence `high`, unix ns; 0 if it is gone, None if there
    can't be one.
    """
    if high < state.first or high > state.last or high == 0:
        return None
    if high == state.last and state.at:
        return state.at
    found = (await store.get(lane, [high]))[0]
    return found.at if found is not None else 0
