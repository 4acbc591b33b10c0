"""Completes attempts: the message is settled, retried, dead-lettered, or returned to its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.node.settle.outcomes import DeadLetterReason

if TYPE_CHECKING:
    from evenlane.engine.core.message.handler_exceptions import Pause
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.eligibility.pauses import TopicPauses
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.node.signals.dirty_lanes import DirtyLanes

_SHORTEST_PAUSE_S = 0.01


class CompletionHandler:
    """Receives the end of each attempt from the workers."""

    def __init__(
        self,
        counters: Counters,
        limits: MemoryBudget,
        dirty: DirtyLanes,
        ready: ReadyQueues,
        eligibility: Eligibility,
        pauses: TopicPauses,
        settlement: MessageSettlement,
        failures: FailureHandler,
        failure_log: FailureLog,
    ) -> None:
        self._counters, self._limits, self._dirty, self._ready = counters, limits, dirty, ready
        self._eligibility, self._pauses, self._settlement = eligibility, pauses, settlement
        self._failures, self._failure_log = failures, failure_log

    def on_success(self, message: Message, now: int) -> None:
        """The handler returned."""
        entry, queue = message._entry, message._queue  # noqa: SLF001 - saves property calls for each message
        lane = entry[0]
        if message.generation == lane.generation:  # (`Lane.settle`, inlined to save a call per message)
            unsynced = lane.unsynced
            if not unsynced:
                lane.log.note(now)
                self._dirty.mark(lane)
            unsynced.append(entry[1])
        elif lane.settle(entry[1], message.generation, now):
            self._dirty.mark(lane)
        else:
            self._counters.void += 1
            self._end(message, queue)
            return
        self._counters.handled += 1
        queue.stats.handled += 1
        if message.recorded or queue.order is not None:
            self._end(message, queue)

    def _end(self, message: Message, queue: Queue) -> None:
        if message._mark:  # noqa: SLF001
            self._settlement.on_attempt_end(message)
        if queue.order is not None:
            self._eligibility.free(queue, MessageRef(*message.place))

    def on_failure(self, message: Message, error: BaseException) -> None:
        """The attempt ended with `error`."""
        self._counters.failed += 1
        if message.timed_out:
            self._counters.given_up += 1
        if not message.lane.is_current(message.sequence, message.generation):
            self._counters.void += 1
            self._settlement.on_attempt_end(message)
            return
        decided = self._failures.decide(message, error)
        follows = decided.reason if isinstance(decided, DeadLetterReason) else f"again in {decided:.3g} s"
        self._failure_log.log_failure(message, error, follows)
        if isinstance(decided, DeadLetterReason):
            message.queue.stats.dead += 1
            if not self._failures.dead_letter(message, decided):
                self._settlement.on_attempt_end(message)
            return
        message.queue.stats.retried += 1
        if message.queue.order is not None and message.key is not None:
            self._eligibility.try_again(message, decided)
        else:
            self._failures.retry(message, decided)
        self._settlement.on_attempt_end(message)

    def on_not_started(self, message: Message) -> None:
        """Return a message that wasn't handled, because the lease had lapsed, say. It waits for the lease
        to be renewed.
        """
        lane = message.lane
        if message.generation == lane.generation:
            message.queue.requeue(message.entry, self._limits)
            self._ready.on_queue_ready(message.queue)
        else:
            lane.return_unstarted(message.sequence, message.generation)
        self._eligibility.on_not_started(message)

    def on_pause(self, message: Message, pause: Pause) -> None:
        """The handler asked for a pause of the topic."""
        if self._pauses.begin(message.project, max(pause.after, _SHORTEST_PAUSE_S), str(pause)):
            self._failure_log.log_pause(message.project, pause)
        self.on_not_started(message)
