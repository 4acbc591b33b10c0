"""What a message's end means: it is settled, tried again, a dead letter, or waits on; and what turns out to be gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.lost_messages import count_gone
from evenlane.engine.node.settle.failure_log import FailureLog
from evenlane.engine.node.settle.outcomes import DeadLetterReason
from evenlane.engine.node.settle.replaced_streams import Replaced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message, Pause
    from evenlane.engine.core.ports import LaneState
    from evenlane.engine.core.queue.entry import MemoryBudget
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.wire.header_values import Refusal
    from evenlane.engine.node.counters import Counters
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.eligibility.pauses import TopicPauses
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settler import Settler

_log = structlog.get_logger(__name__)

_SHORTEST_PAUSE_S = 0.01


class CompletionHandler:
    """The parts of the node that act on them are set by `join`."""

    def __init__(self, counters: Counters, limits: MemoryBudget) -> None:
        self._counters, self._limits = counters, limits
        self._complaints, self._replaced = FailureLog(), Replaced()

    def join(
        self, hands: ReadyQueues, settler: Settler, outcomes: FailureHandler, turns: Eligibility, pauses: TopicPauses
    ) -> None:
        self._hands, self._settler, self._outcomes = hands, settler, outcomes
        self._turns, self._pauses = turns, pauses
        outcomes.on_dead, outcomes.on_stuck = self._complaints.dead, self._complaints.stuck
        outcomes.on_fallen = self._over

    def stop(self) -> None:
        """Say what was only counted until now."""
        self._complaints.stop()
        self._replaced.stop()

    # ---- of attempts

    def handled(self, message: Message, now: int) -> None:
        """Its handler has returned."""
        entry, queue = message._entry, message._queue  # noqa: SLF001 - saves property calls for each message
        lane = entry[0]
        if message.generation == lane.generation:  # (`Lane.settle`, without the price of its call)
            news = lane.news
            if not news:
                lane.log.note(now)
                self._settler.note(lane)
            news.append(entry[1])
        elif lane.settle(entry[1], message.generation, now):
            self._settler.note(lane)
        else:
            self._counters.void += 1
            self._ended(message, queue)
            return
        self._counters.handled += 1
        queue.handled += 1
        if message.recorded or queue.order is not None:
            self._ended(message, queue)

    def _ended(self, message: Message, queue: Queue) -> None:
        if message._mark:  # noqa: SLF001
            self._over(message)
        if queue.order is not None:
            self._turns.free(queue, MessageRef(*message.place))

    def failed(self, message: Message, error: BaseException) -> None:
        """Its attempt has ended with `error`."""
        self._counters.failed += 1
        if message.given_up:
            self._counters.given_up += 1
        if not message.lane.current(message.sequence, message.generation):
            self._counters.void += 1
            self._over(message)
            return
        decided = self._outcomes.decided(message, error)
        follows = decided.reason if isinstance(decided, DeadLetterReason) else f"again in {decided:.3g} s"
        self._complaints.failed(message, error, follows)
        if isinstance(decided, DeadLetterReason):
            message.queue.dead += 1
            if not self._outcomes.dead(message, decided):
                self._over(message)
            return
        message.queue.retried += 1
        if message.queue.order is not None and message.key is not None:
            self._turns.try_again(message, decided)
        else:
            self._outcomes.retry(message, decided)
        self._over(message)

    def _over(self, message: Message) -> None:
        self._counters.suspects += message.suspect
        self._turns.over(message)

    def returned(self, message: Message) -> None:
        """It wasn't handled, as the lease was over, say: it waits on, should the lease be renewed."""
        lane = message.lane
        if message.generation == lane.generation:
            message.queue.take_back(message.entry, self._limits)
            self._hands.at_hand(message.queue)
        else:
            lane.untouched(message.sequence, message.generation)
        self._turns.returned(message)

    def paused(self, message: Message, pause: Pause) -> None:
        """Its handler wants no more of this topic for a while."""
        if self._pauses.begin(message.project, max(pause.after, _SHORTEST_PAUSE_S), str(pause)):
            self._complaints.paused(message.project, pause)
        self.returned(message)

    def refused(self, message: Message, refusals: Iterable[Refusal]) -> None:
        """Log these invalid headers."""
        for refusal in refusals:
            self._complaints.refused(message, refusal)

    def stray(self, lane: Lane, subject: str, reason: str) -> None:
        """It belongs to no queue, and goes to the dead letters."""
        self._complaints.stray(lane, subject, reason)

    # ---- for good

    def settle(self, lane: Lane, sequence: int, generation: int) -> None:
        """It is done, whatever the reason."""
        if lane.settle(sequence, generation, now_ns()):
            self._settler.note(lane)

    def copied(self, lane: Lane, sequence: int, generation: int, message: Message | None) -> None:
        """Its copy is safe, for another attempt or among the dead letters."""
        self.settle(lane, sequence, generation)
        if message is not None:
            self._turns.free(message.queue, MessageRef(lane, sequence))

    def dropped(self, lane: Lane, sequences: Iterable[int], queue: Queue) -> int:
        """These are dropped on purpose, and waited; what of them is handed out later is passed over. How many. They are
        counted under `queue`.
        """
        count = 0
        for sequence in sequences:
            self.settle(lane, sequence, lane.generation)
            count += 1
        self._counters.dropped += count
        queue.dropped += count
        return count

    def unread(self, queue: Queue, lane: Lane, sequence: int, generation: int) -> None:
        """A message that is to be read isn't there."""
        if sequence in lane.dropped:
            lane.dropped.discard(sequence)
        else:
            queue.missing += 1
            self.missing(lane, sequence, generation, queue.project)
        self._turns.free(queue, MessageRef(lane, sequence))

    def missing(self, lane: Lane, sequence: int, generation: int, project: str | None = None) -> None:
        """A message that was indexed isn't there; None: whoever looked knows no project."""
        self._counters.missing += 1
        self._complaints.missing(lane, sequence, project)
        self.settle(lane, sequence, generation)

    def replaced(self, lane: FedLane, state: LaneState) -> Iterable[Queue]:
        """Count the messages that are gone because a lane's stream was replaced; return the queues that lost some."""
        gone = count_gone(lane, state, self._turns.resting)
        for queue, count in gone.items():
            queue.missing += count
        self._counters.missing += gone.total()
        self._replaced.note(lane.id, gone)
        return gone
