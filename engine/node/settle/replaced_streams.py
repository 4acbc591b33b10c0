"""Logs replaced and rolled-back streams: one line for all that are found together, as after a store was wiped."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue

_log = structlog.get_logger(__name__)

_GATHERED_S = 2.0
_NAMED = 20  # projects, and partitions, named in the line


class ReplacedStreams:
    """Gathers replaced streams for two seconds: once the server is back, lanes find out one after the other."""

    def __init__(self) -> None:
        self._lanes: set[LaneId] = set()
        self._gone: Counter[str] = Counter()
        self._ends: asyncio.TimerHandle | None = None

    def note(self, lane: LaneId, gone: Mapping[Queue, int]) -> None:
        """Note that a lane's stream was replaced; `gone` counts the lost messages per queue."""
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(_GATHERED_S, self._end)
        self._lanes.add(lane)  # (a set: several feeds of a delay stream may report the same)
        for queue, count in gone.items():
            self._gone[queue.project] += count

    def stop(self) -> None:
        """Log the gathered streams now."""
        if self._ends is not None:
            self._ends.cancel()
            self._end()

    def _end(self) -> None:
        lanes, gone = self._lanes, self._gone
        self._ends, self._lanes, self._gone = None, set(), Counter()
        projects = dict(gone.most_common(_NAMED))
        _log.warning(
            "streams were replaced or rolled back: beginning anew from their first messages",
            streams=len(lanes), partitions=sorted({lane.partition for lane in lanes})[:_NAMED],
            count=gone.total(), projects=projects, others=gone.total() - sum(projects.values()),
        )  # fmt: skip
