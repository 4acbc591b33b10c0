"""Withholds projects: none of their messages is handed out for a while, whatever their topics say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.signals.work_signal import WorkSignal


class WithheldProjects:
    """Puts the queues of withheld projects to sleep, and wakes them up."""

    def __init__(self, queues: QueueRegistry, ready: ReadyQueues, signal: WorkSignal) -> None:
        self._queues, self._ready, self._signal = queues, ready, signal

    def withhold(self, project: str, reason: str, on: bool, *, for_long: bool = True) -> None:
        """Withhold a project for this reason, or end that. Unless it is `for_long`, payloads stay in memory."""
        self._queues.withhold(project, reason, on, asleep=on and for_long)
        self.on_rules_change(project)

    def on_rules_change(self, project: str) -> None:
        """Act at once on new rules of the project's queues."""
        for queue in self._queues.list_by_priority(project):
            self._ready.on_rules_change(queue)
        self._signal.notify()
