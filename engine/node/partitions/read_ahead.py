"""Reads ahead: while a large backlog is delivered, reads the heads of small queues by subject (E5). Urgent messages,
and tenants with little backlog, need not wait for the backlogs of others.
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

_TOGETHER = 16  # subjects of a lane that are read at once
_LANES_AT_ONCE = 4  # per node
_NEAR = 2_000  # messages before the backlog's end; a server scans these quickly for all that a queue has there
_OF_ONE = 64  # messages of one queue per answer
_TRIES = 4  # per queue; a message that is read may be settled already, and not removed yet


class ReadAhead:
    """One per node, shared by all its lanes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._gate = asyncio.Semaphore(_LANES_AT_ONCE)

    async def read(self, lane: FedLane, subjects: Sequence[bytes], on_ready: Callable[[Queue], None]) -> None:
        """Read the heads of these subjects, in this order, and call `on_ready` with their queues. The feed delivers
        those that can't be read now.
        """
        generation = lane.generation
        for start in range(0, len(subjects), _TOGETHER):
            some = subjects[start : start + _TOGETHER]
            async with self._gate:
                if lane.generation != generation or not lane.is_catching_up:
                    return
                await asyncio.gather(*(self._read(lane, generation, subject, on_ready) for subject in some))

    async def _read(self, lane: FedLane, generation: int, subject: bytes, on_ready: Callable[[Queue], None]) -> None:
        """Read the head of a subject, or all of its messages if they are near the backlog's end."""
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
            on_ready(queue)
            if found and queue.ready and most == 1 and found[-1].sequence < lane.high - _NEAR:
                return
        if not lane.is_lacking(subject) and (known := lane.queues.get(subject)) is not None and known.behind:
            on_ready(known)  # messages that the tail feed has delivered may start now
