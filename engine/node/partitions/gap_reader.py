"""Reads the few messages that a previous owner left among many settled ones, which the stream still holds for other
subscriptions. A feed would deliver those all over again.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost

if TYPE_CHECKING:
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane

_log = structlog.get_logger(__name__)

_MOST = 1_000  # messages of a lane: beyond it, a feed is at work sooner
_COST = 20  # a message that is read alone costs as much as so many of a feed that are passed over
_AT_ONCE = 256  # messages,
_BYTES = 32 << 20  # and bytes, if each were as large as a message may be


async def read_gaps(store: Store, lane: FedLane, state: LaneState) -> None:
    """Take in what isn't settled below the highest settled message of a lane whose feed hasn't begun, so that the feed
    may begin behind it. Does nothing where a feed costs less, and in a lane that no other subscription needs: there,
    settled messages are soon removed. `state` is that of the stream. Raises Lost.
    """
    if not lane.is_shared:
        return
    open_ = list(islice(chain.from_iterable(range(first, last + 1) for first, last in lane.settled.gaps()), _MOST + 1))
    if not open_ or len(open_) > _MOST:
        return
    highest = max(last for _, last in lane.settled.above())
    generation = lane.generation
    size = await store.size(lane.id)
    if size.messages - (state.last - highest) < _COST * len(open_):
        return
    at_once = max(1, min(_AT_ONCE, _BYTES // store.max_payload))
    for start in range(0, len(open_), at_once):
        some = open_[start : start + at_once]
        found = await store.get(lane.id, some)
        if lane.generation != generation:
            raise Lost("the stream was replaced meanwhile")
        for sequence, message in zip(some, found, strict=True):
            lane.take_in_singly(sequence, message)
    lane.position = highest
    _log.info("read between settled messages", **lane_fields(lane), messages=len(open_), passed_over=highest - open_[0])
