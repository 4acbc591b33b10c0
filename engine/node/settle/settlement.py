"""Settles messages whose outcome is final: handled, replaced by a copy, dropped, expired, missing, or passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.lost_messages import count_gone
from evenlane.engine.node.settle.replaced_streams import ReplacedStreams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import LaneState
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.queues.activity import Activity
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.node.signals.dirty_lanes import DirtyLanes


class MessageSettlement:
    """Settles messages in their lanes, frees their keys, and counts losses. Settled messages are durable once the
    settler has written them.
    """

    def __init__(
        self,
        counters: Counters,
        dirty: DirtyLanes,
        eligibility: Eligibility,
        activity: Activity,
        failure_log: FailureLog,
    ) -> None:
        self._counters, self._dirty, self._eligibility = counters, dirty, eligibility
        self._activity, self._failure_log, self._replaced = activity, failure_log, ReplacedStreams()

    def stop(self) -> None:
        """Write the pending summaries to the log."""
        self._failure_log.stop()
        self._replaced.stop()

    def settle(self, lane: Lane, sequence: int, generation: int) -> None:
        """Settle a message, whatever its outcome."""
        if lane.settle(sequence, generation, now_ns()):
            self._dirty.mark(lane)

    def pass_over(self, lane: Lane, sequence: int) -> None:
        """Settle a message of a shared stream that isn't for this subscription."""
        self._counters.passed_over += 1
        self.settle(lane, sequence, lane.generation)

    def settle_copied(self, lane: Lane, sequence: int, generation: int, message: Message | None) -> None:
        """Settle a message whose copy is stored, for another attempt or among the dead letters."""
        self.settle(lane, sequence, generation)
        if message is not None:
            self._eligibility.free(message.queue, MessageRef(lane, sequence))

    def on_attempt_end(self, message: Message) -> None:
        """The process has survived an attempt at the message."""
        self._counters.suspects += message.is_suspect
        self._eligibility.on_end(message)

    def drop(self, lane: Lane, sequences: Iterable[int], queue: Queue) -> int:
        """Drop waiting messages of `queue` by command, and return their number. A queue that still has them skips them
        later.
        """
        count = 0
        for sequence in sequences:
            self.settle(lane, sequence, lane.generation)
            count += 1
        self._counters.dropped += count
        queue.stats.dropped += count
        return count

    def settle_unread(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        """Settle a message of `queue` whose payload isn't in its stream."""
        if sequence in lane.dropped:
            lane.dropped.discard(sequence)
        else:
            queue.stats.missing += 1
            self.settle_missing(lane, sequence, generation, queue.project)
        self._eligibility.free(queue, MessageRef(lane, sequence))

    def settle_missing(self, lane: Lane, sequence: int, generation: int, project: str | None = None) -> None:
        """Settle a message whose sequence was known and which isn't in its stream. `project` is None if the caller
        doesn't know it.
        """
        self._counters.missing += 1
        self._failure_log.log_missing(lane, sequence, project)
        self.settle(lane, sequence, generation)

    def count_replaced(self, lane: FedLane, state: LaneState) -> None:
        """Count the messages that are lost because a lane's stream was replaced. Call it before the lane is reset."""
        gone = count_gone(lane, state, self._eligibility.list_resting)
        for queue, count in gone.items():
            queue.stats.missing += count
            self._activity.note(queue)
        self._counters.missing += gone.total()
        self._replaced.note(lane.id, gone)
