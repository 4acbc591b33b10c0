"""Which of the messages that may have killed a process may start (X11).

A suspect was in flight when a process died. On each node at most one suspect is handled at a time: it is the one that
an in-flight record accuses, and so the cause if the process dies again. In the attempt after which a death would bury
it, it starts only when no other recorded message is in flight, and until it has ended none starts: it may not be the
cause, and then another one would make it look guilty. Messages that need no record go on beside it.

A message that has to wait is set aside; only its place is kept. When 1,024 are set aside, further queues stop handing
out messages instead: otherwise a whole backlog below the horizon would be set aside.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.wake_timer import WakeTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate
    from evenlane.engine.node.queues.ready_queues import ReadyQueues

_SECOND = 1_000_000_000
_MOST_ASIDE = 1_024
_TURN = _SECOND  # in which a suspect that may start alone has to be chosen


class Verdict(Enum):
    """Of a recorded message that was chosen."""

    START = 1
    WAIT = 2  # set aside, until `again`
    STAY = 3  # so many are set aside that it is to stay in its queue, which is laid down until `resume`


class _Aside(NamedTuple):
    queue: Queue
    place: MessageRef
    generation: int

    @property
    def void(self) -> bool:
        """Its lane was handed over or replaced."""
        return self.place.lane.generation != self.generation


class Suspects:
    """`gate` knows whether a recorded message has started or may start, and whether none may be recorded now; `ready`
    suspends queues. `again(queue, place, generation)` is called to bring back a message that was set aside.

    `_running` is the suspect that has started, or is about to. `_last` is one in its last attempt: it runs, or waits
    until it is alone; in either case no other recorded message starts. It waits until `_until` at the most, and loses
    its place then if nobody chooses it within a second: its topic may have been paused.
    """

    def __init__(
        self,
        gate: InFlightGate,
        ready: ReadyQueues,
        again: Callable[[Queue, MessageRef, int], None],
    ) -> None:
        self._gate, self._ready, self._again = gate, ready, again
        self._running: MessageRef | None = None
        self._last: MessageRef | None = None
        self._waiting: _Aside | None = None  # it is `_last`
        self._until = 0
        self._alarm = WakeTimer(self._rung)
        self._aside: list[_Aside] = []

    def of(self, queue: Queue) -> list[MessageRef]:
        """Those of a queue that are set aside."""
        aside = [*self._aside, *([self._waiting] if self._waiting is not None else [])]
        return [each.place for each in aside if each.queue is queue and not each.void]

    # ---- before the start

    def may_start(self, queue: Queue, place: MessageRef, *, suspect: bool, last: bool, now: int) -> Verdict:
        """What becomes of a recorded message. `last`: it is a suspect whose attempts are over with this one."""
        if self._gate.failing or (self._last is not None and self._last != place):
            return self._set_aside(queue, place)
        if not suspect:
            return Verdict.START
        if self._running is not None and self._running != place:
            return self._set_aside(queue, place)
        if last and not self._may_be_last(queue, place, now):
            return Verdict.WAIT
        self._running = place
        return Verdict.START

    def _set_aside(self, queue: Queue, place: MessageRef) -> Verdict:
        if len(self._aside) >= _MOST_ASIDE:
            self._ready.suspend(queue)
            return Verdict.STAY
        self._aside.append(_Aside(queue, place, place.lane.generation))
        return Verdict.WAIT

    def _may_be_last(self, queue: Queue, place: MessageRef, now: int) -> bool:
        if self._last is None:
            self._last, self._until = place, now + queue.ack_wait + _SECOND
        if self._gate.busy and now < self._until:
            self._waiting = _Aside(queue, place, place.lane.generation)
            self._alarm.set(self._until, now)
            return False
        self._waiting = None
        return True

    # ---- afterwards

    def ended(self, place: MessageRef) -> None:
        """A suspect has ended, or won't be handled now."""
        if self._running == place:
            self._running = None
            self._end_last(place)
            self.bring_back()

    def emptied(self) -> None:
        """No recorded message is in flight any more."""
        self._begin_last()

    def bring_back(self) -> None:
        """All that are set aside: whichever is chosen first goes. One by one, the others might wait for a message that
        expires.
        """
        aside, self._aside = self._aside, []
        for each in reversed(aside):
            self._again(*each)
        self._ready.resume_all()

    def forget_void(self) -> None:
        """A lane was handed over or replaced."""
        self._aside = [each for each in self._aside if not each.void]
        if self._waiting is not None and self._waiting.void:
            self._give_way()

    def stop(self) -> None:
        self._alarm.cancel()

    def _begin_last(self) -> None:
        """Have the suspect that waits to be alone chosen next."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._until = now_ns()
            self._alarm.cancel()
            self._alarm.set(self._until + _TURN, self._until)
            self._again(*waiting)

    def _rung(self) -> None:
        if self._waiting is not None:
            self._begin_last()
        elif self._last is not None and self._running != self._last:
            self._give_way()

    def _give_way(self) -> None:
        """Whoever was to run alone won't: it waits for its turn like any other."""
        self._last = self._waiting = None
        self._alarm.cancel()
        self.bring_back()

    def _end_last(self, place: MessageRef) -> None:
        if self._last == place:
            self._last = self._waiting = None
            self._alarm.cancel()
