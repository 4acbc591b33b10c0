"""Projects of which nothing is handed out for a while, whatever their topics say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.signals.work_signal import WorkSignal


class WithheldProjects:
    """Carries out what a part of the node demands of a project: its queues go to sleep, or wake up."""

    def __init__(self, queues: QueueRegistry, ready: ReadyQueues, signal: WorkSignal) -> None:
        self._queues, self._ready, self._signal = queues, ready, signal

    def withhold(self, project: str, reason: str, on: bool, *, for_long: bool = True) -> None:
        """Hand out nothing of a project for this reason, or end that. Unless it is `for_long`, payloads stay ready."""
        self._queues.withhold(project, reason, on, asleep=on and for_long)
        self.rules_changed(project)

    def rules_changed(self, project: str) -> None:
        """The project's queues have other rules: act on them at once."""
        for queue in self._queues.by_priority(project):
            self._ready.rules_changed(queue)
        self._signal.notify()
