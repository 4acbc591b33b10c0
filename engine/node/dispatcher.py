"""Chooses the next message that may start: the head of the queue that the scheduler names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import SUSPECT, one_less
from evenlane.engine.core.message.log_fields import message_fields
from evenlane.engine.core.message.message import Message
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.expiry import expired
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import refusals
from evenlane.engine.node.queues.wake_timer import WakeTimer
from evenlane.engine.node.settle.outcomes import DeadLetterReason

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Grant, Scheduler
    from evenlane.engine.node.counters import Counters
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.settle.settler import Settler
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.store_clock import StoreClock
    from evenlane.engine.node.signals.work_signal import WorkSignal

_log = structlog.get_logger(__name__)

_GONE_AT_ONCE = 200  # expired messages, say, in one turn of the loop
_WEIGHED_EVERY = 256  # messages, between two looks at how many ends aren't durable


class Dispatcher:
    """Asks the scheduler for the next queue, and takes its head if nothing is against it. `env` and `node_id` are for
    the messages. `stopped` is set when the node starts nothing more.
    """

    def __init__(
        self,
        env: str,
        node_id: str,
        limits: MemoryBudget,
        counters: Counters,
        scheduler: Scheduler[Queue],
        ready: ReadyQueues,
        eligibility: Eligibility,
        settlement: MessageSettlement,
        failures: FailureHandler,
        failure_log: FailureLog,
        settler: Settler,
        trust: LeaseTrust,
        clock: StoreClock,
        signal: WorkSignal,
    ) -> None:
        self._env, self._id, self._limits, self._counters = env, node_id, limits, counters
        self._scheduler, self._ready, self._memory, self._reader = scheduler, ready, ready.memory, ready.reader
        self._eligibility, self._settlement, self._settler = eligibility, settlement, settler
        self._failures, self._failure_log = failures, failure_log
        self._trust, self._clock, self._signal = trust, clock, signal
        self._alarm = WakeTimer(signal.notify)
        self.stopped = False
        self._unweighed = 0  # messages since the settler looked last
        self._gone = 0  # messages that were taken and not handled, since a queue was last set aside for it
        self._aside: list[Queue] = []

    def stop(self) -> None:
        self.stopped = True
        self._alarm.cancel()

    def take(self, now: int) -> Message | None:
        """The next message to handle; the lease is looked at before each one."""
        settler = self._settler
        self._unweighed += 1
        if self._unweighed >= _WEIGHED_EVERY:
            self._unweighed = 0
            settler.weigh()
        if self.stopped or settler.lagging or settler.full or self._failures.crowded:
            return None
        if now >= self._trust.until:
            return None
        while True:
            grant = self._scheduler.next(now)
            if grant is None:
                self._alarm.set(self._scheduler.wake_at(), now)
                return None
            message = self._hand_out(grant, now)
            if message is not None:
                return message
            self._gone += 1
            if self._gone >= _GONE_AT_ONCE:
                self._set_aside(grant.queue, now)

    def more(self, message: Message, now: int) -> Message | None:
        """For a batch: another message of the same queue. A suspect is a batch by itself: a death then accuses it."""
        queue = message.queue
        while (
            queue.hand
            and not (message.suspect or _is_suspect(queue.hand[0]))
            and (grant := self._scheduler.again(queue, now)) is not None
        ):
            another = self._hand_out(grant, now)
            if another is not None:
                return another
        return None

    def is_expired(self, message: Message, now: int) -> bool:
        """Whether its time to live is over."""
        return expired(message.entry, message.queue.ttl, now + self._clock.offset)

    def _set_aside(self, queue: Queue, now: int) -> None:
        """Much of this turn of the loop went to messages that aren't handled (expired ones, say), which cost their
        tenant nothing: others come first, and this queue again in the next turn.
        """
        if not self._aside:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._aside.append(queue)
        self._scheduler.empty(queue, now)

    def _next_turn(self) -> None:
        self._gone = 0
        aside, self._aside = self._aside, []
        self._ready.all_ready(aside)
        self._signal.notify()

    def _hand_out(self, grant: Grant[Queue], now: int) -> Message | None:
        """The head of the granted queue, charged; None if it is gone, has expired, or must wait."""
        queue = grant.queue
        hand = queue.hand
        if not hand:  # its stream was replaced meanwhile
            self._refuse(grant, now)
            return None
        entry = hand.pop(0)  # (`Queue.take`, without the price of its call)
        lane, sequence, at, _, _, size, special = entry
        self._limits.held -= size
        queue.hand_bytes -= size
        if self._memory.starved:
            self._memory.freed()
        if queue.behind and len(hand) < queue.low and not queue.loading:
            self._reader.want(queue)
        mark, recorded = 0, False
        if sequence <= lane.horizon or queue.careful or lane.later or lane.marks.of or lane.dropped:
            mark = lane.marks.of.get(sequence, 0)
            recorded = _is_recorded(queue, entry, mark)
            if self._waits(queue, entry, mark, now, recorded=recorded):
                self._refuse(grant, now)
                return None
        # A message is young, most often, and says nothing of itself.
        if (special or 0 < queue.ttl <= now + self._clock.offset - at) and self._ends_here(grant, entry, now):
            self._refuse(grant, now)
            return None
        grant.commit(now)
        if not hand:
            self._scheduler.empty(queue, now)
        message = Message(entry, queue, self._env, self._id, now, mark)
        if recorded:
            message.recorded = True
            if message.suspect:
                _log.warning("a process died with this message in flight: it is tried again", **message_fields(message))
        return message

    def _refuse(self, grant: Grant[Queue], now: int) -> None:
        """The message that was granted doesn't start."""
        grant.cancel()
        if not grant.queue.hand:
            self._scheduler.empty(grant.queue, now)

    def _waits(self, queue: Queue, entry: Entry, mark: int, now: int, *, recorded: bool) -> bool:
        """Whether a message must not start now, or never."""
        lane, sequence = entry[0], entry[1]
        place = MessageRef(lane, sequence)
        if sequence in lane.dropped:
            lane.dropped.discard(sequence)
            self._eligibility.free(queue, place)
            return True
        if self._eligibility.waits(queue, entry, mark, now, recorded=recorded):
            if self._eligibility.suspends(queue):
                self._memory.unload(queue, now)
            return True
        if not self._eligibility.killed_too_often(queue, entry, mark):
            return False
        message = Message(entry, queue, self._env, self._id, now, one_less(mark))
        queue.dead += 1
        death = DeadLetterReason(f"{_end_of_process(lane, sequence)} in attempt {message.attempt}", "")
        _log.warning("a message has killed its process: it goes to the dead letters", **message_fields(message))
        self._failures.dead(message, death, fall_back=False)
        return True

    def _ends_here(self, grant: Grant[Queue], entry: Entry, now: int) -> bool:
        """Whether a message ends without a handler: it has expired, or its header of when it does is invalid."""
        queue = grant.queue
        if entry[6] and (refused := refusals(entry[3])):
            mark = entry[0].marks.of.get(entry[1], 0)
            message = Message(entry, queue, self._env, self._id, now, mark)
            for refusal in refused:
                self._failure_log.refused(message, refusal)
            if refused[0].fatal:
                self._bury(grant, entry, str(refused[0]), now)
                return True
        if not expired(entry, queue.ttl, now + self._clock.offset):
            return False
        self._expire(grant, entry, now)
        return True

    def _expire(self, grant: Grant[Queue], entry: Entry, now: int) -> None:
        queue = grant.queue
        self._counters.expired += 1
        if queue.topic is not None and queue.topic.dead_letter_expired:
            self._bury(grant, entry, "expired", now)
            return
        lane, place = entry[0], MessageRef(entry[0], entry[1])
        self._eligibility.forgo(place)
        queue.expired += 1
        self._settlement.settle(lane, entry[1], lane.generation)
        self._eligibility.free(queue, place)

    def _bury(self, grant: Grant[Queue], entry: Entry, reason: str, now: int) -> None:
        """Without an attempt; charged, as the store is asked to keep no more dead letters than the quota allows."""
        queue = grant.queue
        grant.commit(now)
        self._scheduler.done(queue, now, 0)
        queue.dead += 1
        mark = entry[0].marks.of.get(entry[1], 0)
        message = Message(entry, queue, self._env, self._id, now_ns(), mark)
        message.recorded = _is_recorded(queue, entry, mark)
        if not self._failures.dead(message, DeadLetterReason(reason, "")):
            self._eligibility.forgo(MessageRef(entry[0], entry[1]))


def _end_of_process(lane: Lane, sequence: int) -> str:
    """What the last process that handled a message ended of. One that stays blocked ends itself."""
    seconds = lane.blocked.get(sequence)
    return "its process died" if seconds is None else f"blocked its node for {seconds:.0f} s"


def _is_recorded(queue: Queue, entry: Entry, mark: int) -> bool:
    """Whether a message may have been in flight at a death, and so starts once an in-flight record names it. One that
    has a single attempt always does: N + 1 deaths would leave it none that tells it from its neighbours.
    """
    lane = entry[0]
    return (
        entry[1] <= lane.horizon
        or queue.single_attempt
        or bool(mark & SUSPECT)
        or (lane.later and h.value(entry[3], h.RECORDED) is not None)
    )


def _is_suspect(entry: Entry) -> bool:
    return bool(entry[0].marks.of.get(entry[1], 0) & SUSPECT)
