"""Finds the queue of a message by its subject. Dead-letters unroutable messages, and settles those that a named
subscription passes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.core.message import copies
from evenlane.engine.core.queue.subscription_filter import ALL_MESSAGES, SubscriptionFilter
from evenlane.engine.core.wire.subjects import UnroutableSubject, parse_queue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settlement import MessageSettlement


class QueueResolver:
    """The `LaneHost` of a node's lanes. `bands` maps priorities to bands; `chosen` says which messages are for a named
    subscription, and changes when it is reset.
    """

    def __init__(
        self,
        cluster: str,
        bands: Mapping[str, int],
        queues: QueueRegistry,
        ready: ReadyQueues,
        failures: FailureHandler,
        failure_log: FailureLog,
        settlement: MessageSettlement,
        chosen: SubscriptionFilter = ALL_MESSAGES,
    ) -> None:
        self._cluster, self._bands, self._queues = cluster, bands, queues
        self._failures, self._failure_log, self._settlement = failures, failure_log, settlement
        self._is_named, self.chosen = bool(names.subscription_of(cluster)), chosen
        self.needs_stray_bodies = not self._is_named
        self.on_queue_ready = ready.on_queue_ready

    def open_queue(self, lane: FedLane, subject: bytes, entry: Entry | None) -> Queue | None:
        """The queue of a subject that is seen for the first time. None if it is unroutable, or its project's messages
        aren't for this subscription; a message passed as `entry` is then dead-lettered or passed over.

        A message with an unroutable subject is dead-lettered once, by the unnamed subscription.
        """
        try:
            project, group, band = parse_queue(subject, lane.id.kind, self._bands)
        except UnroutableSubject as error:
            if entry is not None:  # None: only the subject was looked up
                if self.filters(lane):
                    self.pass_over(lane, entry[1])
                else:
                    self._bury(lane, subject.decode("utf-8", "replace"), entry, str(error))
            return None
        if not self.chosen.takes_project(project):
            if entry is not None:
                self.pass_over(lane, entry[1])
            return None
        return self._queues.get(lane.id.partition, project, group, band)

    def takes_delayed(self, lane: Lane, headers: bytes, at: int) -> bool:
        """Whether a message of a delay stream, or of the subscription's own stream of retries, is for it."""
        return self.chosen.takes_retry(at) if lane.id.kind == "again" else self.chosen.takes_delayed(headers, at)

    def filters(self, lane: Lane) -> bool:
        """Whether a lane has messages that aren't for this subscription: a shared one, of a named subscription."""
        return self._is_named and lane.id.kind != "again"

    def pass_over(self, lane: Lane, sequence: int) -> None:
        """Settle a message that isn't for this subscription, before it enters a queue."""
        self._settlement.pass_over(lane, sequence)

    def _bury(self, lane: FedLane, subject: str, entry: Entry, reason: str) -> None:
        self._failure_log.unroutable(lane, subject, reason)
        stream = names.stream(self._cluster, lane.id)
        _, sequence, at, headers, body, *_ = entry
        copy = copies.unroutable(subject, stream, sequence, at, headers, body, self._cluster, reason)
        self._failures.unroutable(lane, sequence, copy)
