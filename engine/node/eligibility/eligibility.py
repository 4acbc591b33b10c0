"""Decides which messages must not start although the scheduler has granted them. These are messages behind their key
(an earlier message of the key hasn't ended), messages of a kind without a handler, suspects while another suspect runs,
and messages that have killed too many processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.attempts import CONFIRMED, SUSPECT, attempts, due
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.wire import header_values
from evenlane.engine.node.eligibility.retries import InPlaceRetries
from evenlane.engine.node.eligibility.suspects import Suspects, Verdict
from evenlane.engine.node.eligibility.unhandled import UnhandledMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
    from evenlane.engine.node.queues.ready_queues import ReadyQueues
    from evenlane.engine.node.queues.withheld import WithheldProjects
    from evenlane.engine.node.signals.dirty_lanes import DirtyLanes

_SECOND = 1_000_000_000
_NO_LIMIT = 1 << 30  # attempts, for a project without a topic, whose messages aren't handed out anyway


class Eligibility:
    """Checks messages before their start, and keeps those that must wait until they may return to their queues through
    `ready`. `store_now` is the store's clock, unix ns.
    """

    def __init__(
        self,
        limits: MemoryBudget,
        ready: ReadyQueues,
        withheld: WithheldProjects,
        gate: InFlightGate,
        dirty: DirtyLanes,
        store_now: Callable[[], int],
    ) -> None:
        self._limits, self._ready, self._dirty, self._store_now = limits, ready, dirty, store_now
        self._suspects = Suspects(gate, ready, self._again)
        self._retries = InPlaceRetries(self._due, withheld)
        self._unhandled = UnhandledMessages(withheld)

    def stop(self) -> None:
        self._retries.stop()
        self._suspects.stop()

    def list_resting(self, queue: Queue) -> list[MessageRef]:
        """The messages of a queue that wait for their next attempt, for another suspect's end, or for a handler."""
        return [
            *self._retries.list_waiting(queue), *self._suspects.list_waiting(queue),
            *self._unhandled.list_waiting(queue),
        ]  # fmt: skip

    def iter_retrying(self) -> Iterator[Queue]:
        """The queue of each message that waits for its next attempt."""
        return self._retries.queues()

    # ---- before an attempt

    def defer(self, queue: Queue, entry: Entry, mark: int, now: int, *, recorded: bool) -> bool:
        """Keep a message that was taken from its queue if it must wait, until it may start. False if it need not."""
        place = MessageRef(entry[0], entry[1])
        order = queue.order
        if order is not None and (key := header_values.key(entry[3])) is not None and not order.admit(key, place):
            if not order.wait(key, entry, self._limits):
                queue.requeue(entry, self._limits)
            return True
        if self._unhandled.takes(queue, entry):
            self._unhandled.add(queue, place, entry[0].generation)
            return True
        if mark and (wait := due(mark) - self._store_now()) > 0:  # it failed under a previous owner
            self._retries.add(now + wait, queue, place, entry[0].generation)
            return True
        if not recorded or self.has_killed_too_often(queue, entry, mark):
            return False
        suspect = bool(mark & SUSPECT)
        last = suspect and _attempts_left(queue, entry, mark) <= 1
        verdict = self._suspects.judge(queue, place, suspect=suspect, last=last, now=now)
        if verdict is Verdict.STAY:
            queue.requeue(entry, self._limits)
        return verdict is not Verdict.START

    @staticmethod
    def has_killed_too_often(queue: Queue, entry: Entry, mark: int) -> bool:
        """Whether a suspect has used all its attempts, and certainly caused the last death."""
        return bool(mark & CONFIRMED) and _attempts_left(queue, entry, mark) <= 0

    def should_suspend(self, queue: Queue) -> bool:
        """Whether the queue should hand out no messages until some of those that wait here have returned."""
        return queue in self._ready.suspended or (queue.order is not None and queue.order.full)

    def on_records_change(self) -> None:
        """The store refuses in-flight records, or accepts them again."""
        self._suspects.bring_back()

    def on_recorded_gone(self) -> None:
        """No recorded message is in flight any more."""
        self._suspects.on_recorded_gone()

    # ---- after an attempt

    def on_end(self, message: Message) -> None:
        """Clear a suspect: the process has survived an attempt at it."""
        if message.is_suspect:
            lane, sequence = message.place
            if message.generation == lane.generation:
                lane.log.mark_cleared(sequence, now_ns())
                self._dirty.mark(lane)
            self._suspects.on_end(MessageRef(lane, sequence))

    def on_not_started(self, message: Message) -> None:
        """Forgo a suspect whose handler didn't start after all."""
        if message.is_suspect:
            self.forgo(MessageRef(*message.place))

    def forgo(self, place: MessageRef) -> None:
        """A suspect that was about to be handled won't be."""
        self._suspects.on_end(place)

    def discard_stale(self) -> None:
        """Drop messages of lanes that were handed over or replaced."""
        self._retries.discard_stale()
        self._suspects.discard_stale()
        self._unhandled.discard_stale()

    def on_rules_change(self, queue: Queue) -> None:
        """Messages that needed a handler may return to a queue whose messages are pushed from now on."""
        if queue.unhandled and queue.rules.pushed:
            for place in self._unhandled.list_waiting(queue):
                self._unhandled.discard(queue, place)
                self._again(queue, place, place.lane.generation)

    def free(self, queue: Queue, place: MessageRef) -> None:
        """Free the key of an ordered topic's message whose outcome is final: the key's next message may start."""
        order = queue.order
        self._retries.discard(queue, place)
        if queue.unhandled:
            self._unhandled.discard(queue, place)
        if order is None:
            return
        was_full = order.full
        following = order.free_key(place, self._limits)
        if following is not None:
            queue.requeue(following, self._limits)
        if following is not None or (was_full and not order.full):
            self._ready.on_queue_ready(queue)

    def try_again(self, message: Message, after_s: float) -> None:
        """Schedule the next attempt of an ordered topic's message: it stays in its lane, and its key waits."""
        lane, sequence = message.place
        now, after = now_ns(), int(after_s * _SECOND)
        again_at = self._store_now() + after
        if message.generation != lane.generation:  # the lane is being handed over
            lane.mark_failed_late(sequence, message.generation, again_at, now)
            self._dirty.mark(lane)
            return
        lane.log.mark_failed(sequence, again_at, now)
        self._dirty.mark(lane)
        self._retries.add(now + after, message.queue, MessageRef(lane, sequence), message.generation)

    def _due(self, queue: Queue, place: MessageRef, generation: int) -> None:
        place.lane.marks.clear_due(place.sequence)
        if place.lane.generation == generation:
            queue.stats.arrived += 1  # its failed attempt counts as a departure
        self._again(queue, place, generation)

    def _again(self, queue: Queue, place: MessageRef, generation: int) -> None:
        if place.lane.generation == generation:
            queue.requeue(place, self._limits)
            self._ready.on_queue_ready(queue)


def _attempts_left(queue: Queue, entry: Entry, mark: int) -> int:
    """The number of attempts that a message has left, the next one included; 0 or less: none."""
    topic = queue.rules.topic
    most = topic.max_attempts if topic is not None else _NO_LIMIT
    return most + 1 - header_values.attempt(entry[3]) - attempts(mark)
