"""Reads the few messages that wait among many settled ones, after a takeover. While other subscriptions need the
settled messages, the stream holds them, and a feed would deliver all of them again.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost

if TYPE_CHECKING:
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.fed_lane import FedLane

_log = structlog.get_logger(__name__)

_MOST_GAPS = 500  # of a lane; each takes a request
_MOST_READ = 1_000  # messages of a lane: for more, a feed is at work sooner
_FEED_PER_GAP = 20  # messages that a feed delivers in the time of one request
_IN_ONE_ANSWER = 64  # messages; the store limits the bytes
_REQUESTS_AT_ONCE = 4
_ALL = ">"


class GapReader:
    """One per node, for all its lanes. A gap is a run of sequences that aren't settled, between settled ones. What the
    stream still holds of it waits; the rest is gone.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)

    async def read(self, lane: FedLane, state: LaneState) -> None:
        """Take in the messages of the lane's gaps, so that its feed, which hasn't begun, begins behind them. Does
        nothing where a feed is at work sooner, or no other subscription needs the settled messages. `state` is that of
        the stream. Raises Lost, Refused.
        """
        gaps = list(islice(lane.settled.gaps(), _MOST_GAPS + 1)) if lane.is_shared else []
        if not gaps or len(gaps) > _MOST_GAPS:
            return
        start, highest = lane.position, max(last for _, last in lane.settled.above())
        if await self._count_held(lane, state, highest) < _FEED_PER_GAP * len(gaps):
            return
        left = _MOST_READ
        for first, last in gaps:
            left -= await self._read_gap(lane, first, last, left)
            if left <= 0:
                break
        else:
            lane.position = highest
        _log.info(
            "read between settled messages",
            **lane_fields(lane),
            messages=_MOST_READ - left,
            sequences=lane.position - start,
        )

    async def _count_held(self, lane: FedLane, state: LaneState, highest: int) -> int:
        """At least how many messages the stream holds from the feed's begin to the highest settled one."""
        generation = lane.generation
        count = await self._store.count(lane.id, _ALL, lane.position + 1)
        _check_same(lane, generation)
        return count - (state.last - highest)

    async def _read_gap(self, lane: FedLane, first: int, last: int, most: int) -> int:
        """Take in the messages of a gap, or `most` and a few more of them. Returns how many there were."""
        generation, count = lane.generation, 0
        while first <= last and count < most:
            async with self._gate:
                found = await self._store.next_of(lane.id, _ALL, first, _IN_ONE_ANSWER)
            _check_same(lane, generation)
            inside = [each for each in found if each.sequence <= last]
            end = inside[-1].sequence if inside and len(inside) == len(found) else last
            lane.take_in_gap(first, end, inside)
            first, count = end + 1, count + len(inside)
        return count


def _check_same(lane: FedLane, generation: int) -> None:
    """Raises Lost if the stream was replaced: what was read belongs to the one before."""
    if lane.generation != generation:
        raise Lost("the stream was replaced meanwhile")
