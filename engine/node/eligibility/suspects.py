"""Decides which of the messages that may have killed a process may start (X11).

A suspect was in flight when a process died. Each node handles at most one suspect at a time: its in-flight record
accuses this one, which is therefore the cause if the process dies again. If a death in a suspect's next attempt would
dead-letter it, it starts only when no other recorded message is in flight, and no other one starts until it has ended:
otherwise another message might be the cause, and make the suspect look guilty. Messages that need no record run
meanwhile.

A message that has to wait is set aside, without its payload. Once 1,024 are set aside, further queues are suspended
instead, or a whole backlog below the horizon would be set aside.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.queues.wake_timer import WakeTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.queue.entry import MessageRef
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate

_SECOND = 1_000_000_000
_MOST_ASIDE = 1_024
_TURN = _SECOND  # within which a suspect that may start alone must be chosen


class Verdict(Enum):
    """The decision on a recorded message that was chosen."""

    START = 1
    WAIT = 2  # it is set aside until `on_return`
    STAY = 3  # too many are set aside: it stays in its queue, which is suspended until `resume_all`


class QueueSuspension(Protocol):
    """Suspends and resumes queues. Implemented by `ReadyQueues`."""

    def suspend(self, queue: Queue) -> None:
        """Read nothing for the queue until `resume_all`."""

    def resume_all(self) -> None:
        """Resume all suspended queues."""


class _Aside(NamedTuple):
    queue: "Queue"
    place: "MessageRef"
    generation: int

    @property
    def is_stale(self) -> bool:
        """Whether its lane was handed over or replaced."""
        return self.place.lane.generation != self.generation


class Suspects:
    """The suspects of a node, and the recorded messages that wait for them.

    `gate` knows whether a recorded message is in flight, and whether records can't be written; `ready` suspends queues.
    `on_return(queue, place, generation)` returns a message that was set aside to its queue.

    Invariants:
    - `_running` is the one suspect that has started, or is about to.
    - `_last` is a suspect in its last attempt: it runs, or waits until it is alone. While it is set, no other recorded
      message starts.
    - `_waiting` is `_last` while it waits. It waits until `_until` (monotonic ns) at most. When its turn comes it must
      be chosen within a second, or it loses its turn: its topic may have been paused.
    """

    def __init__(
        self,
        gate: InFlightGate,
        ready: QueueSuspension,
        on_return: Callable[[Queue, MessageRef, int], None],
    ) -> None:
        self._gate, self._ready, self._on_return = gate, ready, on_return
        self._running: MessageRef | None = None
        self._last: MessageRef | None = None
        self._waiting: _Aside | None = None
        self._until = 0
        self._wake_timer = WakeTimer(self._on_timer)
        self._aside: list[_Aside] = []

    def list_waiting(self, queue: Queue) -> list[MessageRef]:
        """The messages of a queue that are set aside."""
        aside = [*self._aside, *([self._waiting] if self._waiting is not None else [])]
        return [each.place for each in aside if each.queue is queue and not each.is_stale]

    # ---- before an attempt

    def judge(self, queue: Queue, place: MessageRef, *, suspect: bool, last: bool, now: int) -> Verdict:
        """Decide on a recorded message. `last`: it is a suspect whose next attempt is its last."""
        if self._gate.is_failing or (self._last is not None and self._last != place):
            return self._set_aside(queue, place)
        if not suspect:
            return Verdict.START
        if self._running is not None and self._running != place:
            return self._set_aside(queue, place)
        if last and not self._prepare_last(queue, place, now):
            return Verdict.WAIT
        self._running = place
        return Verdict.START

    def _set_aside(self, queue: Queue, place: MessageRef) -> Verdict:
        if len(self._aside) >= _MOST_ASIDE:
            self._ready.suspend(queue)
            return Verdict.STAY
        self._aside.append(_Aside(queue, place, place.lane.generation))
        return Verdict.WAIT

    def _prepare_last(self, queue: Queue, place: MessageRef, now: int) -> bool:
        if self._last is None:
            self._last, self._until = place, now + queue.rules.ack_wait + _SECOND
        if self._gate.is_busy and now < self._until:
            self._waiting = _Aside(queue, place, place.lane.generation)
            self._wake_timer.set(self._until, now)
            return False
        self._waiting = None
        return True

    # ---- after an attempt

    def on_end(self, place: MessageRef) -> None:
        """A suspect has ended, or won't be handled now."""
        if self._running == place:
            self._running = None
            self._end_last(place)
            self.bring_back()

    def on_recorded_gone(self) -> None:
        """No recorded message is in flight any more."""
        self._begin_last()

    def bring_back(self) -> None:
        """Return all messages that are set aside to their queues; the one that is chosen first starts. If they returned
        one by one, the others might wait for a message that expires.
        """
        aside, self._aside = self._aside, []
        for each in reversed(aside):
            self._on_return(*each)
        self._ready.resume_all()

    def discard_stale(self) -> None:
        """Drop messages of lanes that were handed over or replaced."""
        self._aside = [each for each in self._aside if not each.is_stale]
        if self._waiting is not None and self._waiting.is_stale:
            self._give_way()

    def stop(self) -> None:
        self._wake_timer.cancel()

    def _begin_last(self) -> None:
        """Return the suspect that waited to be alone to its queue."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._until = now_ns()
            self._wake_timer.cancel()
            self._wake_timer.set(self._until + _TURN, self._until)
            self._on_return(*waiting)

    def _on_timer(self) -> None:
        if self._waiting is not None:
            self._begin_last()
        elif self._last is not None and self._running != self._last:
            self._give_way()

    def _give_way(self) -> None:
        """Give up the turn of the suspect that should have run alone: it waits like any other."""
        self._last = self._waiting = None
        self._wake_timer.cancel()
        self.bring_back()

    def _end_last(self, place: MessageRef) -> None:
        if self._last == place:
            self._last = self._waiting = None
            self._wake_timer.cancel()
