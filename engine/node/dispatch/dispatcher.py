"""Chooses the next message that may start: the head of the queue that the scheduler grants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import SUSPECT, one_less
from evenlane.engine.core.message.log_fields import message_fields
from evenlane.engine.core.message.message import Message
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.expiry import is_expired
from evenlane.engine.core.queue.subscription_filter import is_of_another
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import refusals
from evenlane.engine.node.queues.wake_timer import WakeTimer
from evenlane.engine.node.settle.outcomes import DeadLetterReason

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Grant, Scheduler
    from evenlane.engine.node.dispatch.batch_collector import BatchCollector
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.settle.failure_log import FailureLog
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settlement import MessageSettlement
    from evenlane.engine.node.settle.settler import Settler
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.node.signals.lease_trust import LeaseTrust
    from evenlane.engine.node.signals.store_clock import StoreClock
    from evenlane.engine.node.signals.work_signal import WorkSignal

_log = structlog.get_logger(__name__)

_GONE_AT_ONCE = 200  # messages per turn of the loop that end without a handler, such as expired ones
_WEIGHED_EVERY = 256  # messages between two checks of how many results aren't durable


class Dispatcher:
    """Asks the scheduler for the next queue, and takes its head unless a rule forbids it. `cluster` and `node_id` are
    for the messages.

    Invariants:
    - Each grant is either committed (its message is handed out or dead-lettered) or refused (nothing is charged).
    - Queues in `_aside` may have ready messages, but for the scheduler they are empty until the next turn of the loop.
    - `stopped` is set once the node starts no more messages; it is never cleared.
    """

    def __init__(
        self,
        cluster: str,
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
        collector: BatchCollector,
    ) -> None:
        self._cluster, self._id, self._limits, self._counters = cluster, node_id, limits, counters
        self._is_named = bool(names.subscription_of(cluster))
        self._scheduler, self._ready, self._memory, self._reader = scheduler, ready, ready.memory, ready.reader
        self._eligibility, self._settlement, self._settler = eligibility, settlement, settler
        self._failures, self._failure_log = failures, failure_log
        self._trust, self._clock, self._signal, self._collector = trust, clock, signal, collector
        self._wake_timer = WakeTimer(signal.notify)
        self.stopped = False
        self._unweighed = 0  # messages since the last check of the settler
        self._gone = 0  # messages of this turn of the loop that were taken and not handed out
        self._aside: list[Queue] = []

    def stop(self) -> None:
        self.stopped = True
        self._wake_timer.cancel()
        self._collector.stop()

    def next_message(self, now: int) -> Message | None:
        """The next message to handle; None if none may start. The lease is checked for each message."""
        settler = self._settler
        self._unweighed += 1
        if self._unweighed >= _WEIGHED_EVERY:
            self._unweighed = 0
            settler.weigh()
        if self.stopped or settler.full or self._failures.crowded:
            return None
        if now >= self._trust.until or now >= settler.late_at:
            return None
        while True:
            grant = self._scheduler.next(now)
            if grant is None:
                self._wake_timer.set(self._scheduler.wake_at(), now)
                return None
            collects = grant.queue.rules.batch_wait > 0
            if collects and self._collector.must_wait(grant.queue, now):
                grant.cancel()
                self._scheduler.empty(grant.queue, now)
                continue
            message = self._hand_out(grant, now)
            if collects and (message is not None or not grant.queue.ready):
                self._collector.end(grant.queue)
            if message is not None:
                return message
            self._gone += 1
            if self._gone >= _GONE_AT_ONCE:
                self._set_aside(grant.queue, now)

    def take_another(self, message: Message, now: int) -> Message | None:
        """Another message of the same queue, for a batch; None if there is none. A suspect is a batch by itself, so
        that a death accuses it alone.
        """
        queue = message.queue
        while (
            queue.ready
            and not (message.is_suspect or _is_suspect(queue.ready[0]))
            and (grant := self._scheduler.grant_again(queue, now)) is not None
        ):
            another = self._hand_out(grant, now)
            if another is not None:
                return another
        return None

    def is_expired(self, message: Message, now: int) -> bool:
        """Whether the message has outlived its time to live."""
        return is_expired(message.entry, message.queue.rules.ttl, now + self._clock.offset)

    def _set_aside(self, queue: Queue, now: int) -> None:
        """Defer the queue to the next turn of the loop: many messages of this turn ended without a handler (expired
        ones, say), which costs their tenant nothing, so other tenants come first.
        """
        if not self._aside:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._aside.append(queue)
        self._scheduler.empty(queue, now)

    def _next_turn(self) -> None:
        self._gone = 0
        aside, self._aside = self._aside, []
        self._ready.add_all(aside)
        self._signal.notify()

    def _hand_out(self, grant: Grant[Queue], now: int) -> Message | None:
        """The head of the granted queue, charged; None if it is gone, has expired, or must wait."""
        queue = grant.queue
        ready, rules = queue.ready, queue.rules
        if not ready:  # the stream was replaced meanwhile
            self._refuse(grant, now)
            return None
        entry = ready.pop(0)  # (`Queue.take`, inlined to save a call per message)
        lane, sequence, at, _, _, size, special = entry
        self._limits.used_bytes -= size
        queue.ready_bytes -= size
        if self._memory.starved:
            self._memory.wake_reads()
        if queue.behind and len(ready) < rules.low and not queue.loading:
            self._reader.want(queue)
        mark, recorded = 0, False
        if sequence <= lane.horizon or rules.careful or lane.later or lane.marks.of or lane.dropped:
            mark = lane.marks.of.get(sequence, 0)
            recorded = _is_recorded(queue, entry, mark)
            if self._withhold_or_end(queue, entry, mark, now, recorded=recorded):
                self._refuse(grant, now)
                return None
        # Skipped for most messages: they are young, and have none of our headers.
        if (special or 0 < rules.ttl <= now + self._clock.offset - at) and self._must_end(grant, entry, now):
            self._refuse(grant, now)
            return None
        grant.commit(now)
        if not ready:
            self._scheduler.empty(queue, now)
        message = Message(entry, queue, self._cluster, self._id, now, mark)
        if recorded:
            message.recorded = True
            if message.is_suspect:
                _log.warning("a process died with this message in flight: it is tried again", **message_fields(message))
        return message

    def _refuse(self, grant: Grant[Queue], now: int) -> None:
        """Cancel the grant: its message doesn't start."""
        grant.cancel()
        if not grant.queue.ready:
            self._scheduler.empty(grant.queue, now)

    def _withhold_or_end(self, queue: Queue, entry: Entry, mark: int, now: int, *, recorded: bool) -> bool:
        """Keep, drop or dead-letter the message if it must not start now. False if it may start."""
        lane, sequence = entry[0], entry[1]
        place = MessageRef(lane, sequence)
        if sequence in lane.dropped:
            lane.dropped.discard(sequence)
            self._eligibility.free(queue, place)
            return True
        if self._eligibility.defer(queue, entry, mark, now, recorded=recorded):
            if self._eligibility.should_suspend(queue):
                self._memory.unload(queue, now)
            return True
        if not self._eligibility.has_killed_too_often(queue, entry, mark):
            return False
        message = Message(entry, queue, self._cluster, self._id, now, one_less(mark))
        queue.stats.dead += 1
        death = DeadLetterReason(f"{_end_of_process(lane, sequence)} in attempt {message.attempt}", "")
        self._failure_log.log_poison_message(message, death.reason)
        self._failures.dead_letter(message, death, fall_back=False)
        return True

    def _must_end(self, grant: Grant[Queue], entry: Entry, now: int) -> bool:
        """Whether the message ends without a handler: it isn't for this subscription, it has expired, or its expiry
        header is invalid.
        """
        queue = grant.queue
        if self._is_named and entry[0].id.kind != "again" and is_of_another(entry[3]):
            self._counters.passed_over += 1
            self._settle_unhandled(queue, entry)
            return True
        if entry[6] and (refused := refusals(entry[3])):
            mark = entry[0].marks.of.get(entry[1], 0)
            message = Message(entry, queue, self._cluster, self._id, now, mark)
            for refusal in refused:
                self._failure_log.log_refusal(message, refusal)
            if refused[0].fatal:
                queue.stats.dead += 1
                self._bury(grant, entry, str(refused[0]), now)
                return True
        if not is_expired(entry, queue.rules.ttl, now + self._clock.offset):
            return False
        self._expire(grant, entry, now)
        return True

    def _expire(self, grant: Grant[Queue], entry: Entry, now: int) -> None:
        queue = grant.queue
        self._counters.expired += 1
        queue.stats.expired += 1
        topic = queue.rules.topic
        if topic is not None and topic.dead_letter_expired:
            self._bury(grant, entry, "expired", now)
            return
        self._settle_unhandled(queue, entry)

    def _settle_unhandled(self, queue: Queue, entry: Entry) -> None:
        lane, place = entry[0], MessageRef(entry[0], entry[1])
        self._eligibility.forgo(place)
        self._settlement.settle(lane, entry[1], lane.generation)
        self._eligibility.free(queue, place)

    def _bury(self, grant: Grant[Queue], entry: Entry, reason: str, now: int) -> None:
        """Dead-letter a message without an attempt. It is charged, so that dead letters don't exceed the quota either.
        The caller has counted it.

        After this commit, the cancel of `_refuse` has no effect.
        """
        queue = grant.queue
        grant.commit(now)
        self._scheduler.finish(queue, now, 0)
        mark = entry[0].marks.of.get(entry[1], 0)
        message = Message(entry, queue, self._cluster, self._id, now_ns(), mark)
        message.recorded = _is_recorded(queue, entry, mark)
        if not self._failures.dead_letter(message, DeadLetterReason(reason, "")):
            self._eligibility.forgo(MessageRef(entry[0], entry[1]))


def _end_of_process(lane: Lane, sequence: int) -> str:
    """The cause of death of the last process that handled a message. A process that stays blocked ends itself."""
    seconds = lane.blocked.get(sequence)
    return "its process died" if seconds is None else f"blocked its node for {seconds:.0f} s"


def _is_recorded(queue: Queue, entry: Entry, mark: int) -> bool:
    """Whether a message may have been in flight at a death, and so must be named by an in-flight record before it
    starts.

    A message with a single attempt is always recorded: N + 1 deaths would leave no attempt to tell it from its
    neighbours.
    """
    lane = entry[0]
    return (
        entry[1] <= lane.horizon
        or queue.rules.single_attempt
        or bool(mark & SUSPECT)
        or (lane.later and h.value(entry[3], h.RECORDED) is not None)
    )


def _is_suspect(entry: Entry) -> bool:
    return bool(entry[0].marks.of.get(entry[1], 0) & SUSPECT)
