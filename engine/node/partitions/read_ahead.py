"""Reading ahead: while a large backlog comes in, the heads of small queues are read by their subject (E5). So what is
urgent, and whoever has little, need not wait for what others have piled up before it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.core.ports import Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue

_log = structlog.get_logger(__name__)

_TOGETHER = 16  # subjects of a lane that are asked for at once
_LANES_AT_ONCE = 4  # of the node
_NEAR = 2_000  # messages before the backlog's end: a server looks through these at once, for all that a queue has
_OF_ONE = 64  # messages of one queue in one answer
_TRIES = 4  # for one queue: it may have been handled, but not been removed


class ReadAhead:
    """Of one node, whatever the number of its lanes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Semaphore(_LANES_AT_ONCE)

    async def read(self, lane: FedLane, subjects: Sequence[bytes], at_hand: Callable[[Queue], None]) -> None:
        """Read the head of each, in this order; `at_hand` is told of the queues. What can't be read now comes in by the
        feed.
        """
        generation = lane.generation
        for start in range(0, len(subjects), _TOGETHER):
            some = subjects[start : start + _TOGETHER]
            async with self._gate:
                if lane.generation != generation or not lane.catching_up:
                    return
                await asyncio.gather(*(self._read(lane, generation, subject, at_hand) for subject in some))

    async def _read(self, lane: FedLane, generation: int, subject: bytes, at_hand: Callable[[Queue], None]) -> None:
        """Its head; or all of it, where that lies behind most of the backlog."""
        for _ in range(_TRIES):
            if (start := lane.next_ahead(subject)) is None:
                break
            most = _OF_ONE if start > lane.high - _NEAR else 1
            try:
                found = await self._store.next_of(lane.id, subject.decode(), start, most)
            except (Lost, Refused) as error:
                _log.debug("not read ahead", **lane_fields(lane), error=str(error))
                return
            if lane.generation != generation or (queue := lane.take_ahead(subject, found)) is None:
                return
            at_hand(queue)
            if found and queue.hand and most == 1 and found[-1].sequence < lane.high - _NEAR:
                return
        if not lane.lacks(subject) and (known := lane.queues.get(subject)) is not None and known.behind:
            at_hand(known)  # what the tail feed has brought of it may go now
