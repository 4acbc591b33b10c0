"""Tasks of lanes: one at a time for each lane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.node.signals.events import NodeEvents

_log = structlog.get_logger(__name__)


class LaneTasks:
    """A task that fails fences its lane: a defect must not settle or remove anything more.

    Invariant: a lane is in `by_lane` while its task runs.
    """

    def __init__(self, events: NodeEvents) -> None:
        self._events = events
        self.by_lane: dict[Lane, asyncio.Task[None]] = {}

    def run(self, lane: Lane, work: Coroutine[object, object, None], name: str) -> None:
        """Start `work`; the lane has no task. `name` is for the log."""
        task = self.by_lane[lane] = asyncio.create_task(work, name=f"{name} {lane.id}")
        task.add_done_callback(lambda task: self._on_end(lane, task))

    def _on_end(self, lane: Lane, task: asyncio.Task[None]) -> None:
        if self.by_lane.get(lane) is task:
            del self.by_lane[lane]
        if not task.cancelled() and (error := task.exception()) is not None and not lane.fenced:
            _log.error("a part of the settler has failed", part=task.get_name(), exc_info=error)
            lane.fenced = True
            self._events.on_fenced(lane, f"its task {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    def cancel(self, lane: Lane) -> None:
        """Cancel the lane's task, if it has one."""
        if lane in self.by_lane:
            self.by_lane[lane].cancel()
