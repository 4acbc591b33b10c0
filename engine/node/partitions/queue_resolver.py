"""Finds the queue of a message by its subject; dead-letters unroutable messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.core.message import copies
from evenlane.engine.core.wire.subjects import UnroutableSubject, parse_queue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.outcomes import FailureHandler


class QueueResolver:
    """The `LaneHost` of a node's lanes. `bands` maps priorities to bands."""

    def __init__(
        self,
        cluster: str,
        bands: Mapping[str, int],
        queues: QueueRegistry,
        ready: ReadyQueues,
        failures: FailureHandler,
        failure_log: FailureLog,
    ) -> None:
        self._cluster, self._bands, self._queues = cluster, bands, queues
        self._failures, self._failure_log = failures, failure_log
        self.on_queue_ready = ready.on_queue_ready

    def open_queue(self, lane: FedLane, subject: bytes, entry: Entry | None) -> Queue | None:
        """The queue of a subject that is seen for the first time. None if it is unroutable; a message passed as `entry`
        is then dead-lettered.
        """
        try:
            project, group, band = parse_queue(subject, lane.id.kind, self._bands)
        except UnroutableSubject as error:
            if entry is not None:  # None: only the subject was looked up
                self._bury(lane, subject.decode("utf-8", "replace"), entry, str(error))
            return None
        return self._queues.get(lane.id.partition, project, group, band)

    def _bury(self, lane: FedLane, subject: str, entry: Entry, reason: str) -> None:
        self._failure_log.unroutable(lane, subject, reason)
        stream = names.stream(self._cluster, lane.id)
        _, sequence, at, headers, body, *_ = entry
        copy = copies.unroutable(subject, stream, sequence, at, headers, body, self._cluster, reason)
        self._failures.unroutable(lane, sequence, copy)
