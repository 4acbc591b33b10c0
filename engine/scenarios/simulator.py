"""The simulator: the production scheduler on a virtual clock, in front of W slots. Same load and seed, same trace.

An event is an arrival, the end of a handler, or the instant the scheduler named (`wake_at`). At each of them first
ends are told, then arrivals, then `next` is asked for as long as a slot is free and it gives something: exactly what
the node does. A scheduler that names an instant which isn't in the future would make the node spin: that raises.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from engine.scenarios.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.scenarios.load import Load
    from engine.scheduler.interface import Scheduler

_NEVER = 1 << 62


class SpinError(AssertionError):
    """The scheduler has nothing to give now and asks to be asked again now."""


class SimQueue:
    """A queue as the scheduler sees it, with the numbers of its messages."""

    __slots__ = ("band", "group", "project", "slot", "waiting")

    def __init__(self, project: str, group: int, band: int) -> None:
        self.project, self.group, self.band = project, group, band
        self.slot: object | None = None
        self.waiting: deque[int] = deque()


class Simulator:
    """`scheduler` is new and knows nothing yet. Times are ns from 0, the load's start."""

    def __init__(self, load: Load, scheduler: Scheduler[SimQueue], slots: int) -> None:
        self.load, self.scheduler, self.slots = load, scheduler, slots
        self.now = 0
        self.trace = Trace(load)
        self.free = slots
        self._next_arrival = 0
        self._running: list[tuple[int, int, int, SimQueue]] = []  # (end, order of start, message, queue)
        self._starts = 0
        self._queues: dict[tuple[int, int, int], SimQueue] = {}

    def run(self) -> Trace:
        """To the end of the load's time; what runs then gets its end all the same. Raises SpinError."""
        for each in self.load.tenants:
            self.scheduler.configure(each.name, each.topic, 0)
        while self.now <= self.load.until:
            self._end_handlers()
            self._take_arrivals()
            self._start_handlers()
            wake = self._wake_at() if self.free else _NEVER
            self.now = min(self._arrival_at(), self._running[0][0] if self._running else _NEVER, wake)
        return self.trace

    def _end_handlers(self) -> None:
        running, now, done = self._running, self.now, self.scheduler.done
        while running and running[0][0] <= now:
            _end, _order, number, queue = heappop(running)
            self.free += 1
            done(queue, now, now - self.trace.started[number])

    def _take_arrivals(self) -> None:
        at, now, number = self.load.at, self.now, self._next_arrival
        while number < len(at) and at[number] <= now:
            queue = self._queue(number)
            queue.waiting.append(number)
            if len(queue.waiting) == 1:
                self.scheduler.ready(queue, now)
            number += 1
        self._next_arrival = number

    def _start_handlers(self) -> None:
        now, scheduler, trace = self.now, self.scheduler, self.trace
        while self.free and (queue := scheduler.next(now)) is not None:
            number = queue.waiting.popleft()
            if not queue.waiting:
                scheduler.empty(queue, now)
            trace.started[number] = now
            trace.ended[number] = end = now + self.load.service[number]
            self.free -= 1
            self._starts += 1
            heappush(self._running, (end, self._starts, number, queue))

    def _wake_at(self) -> int:
        wake = self.scheduler.wake_at()
        if wake is None:
            return _NEVER
        if wake <= self.now:
            raise SpinError(f"nothing may go at {self.now} ns, yet the scheduler wants to be asked at {wake} ns")
        return wake

    def _arrival_at(self) -> int:
        number = self._next_arrival
        return self.load.at[number] if number < len(self.load) else _NEVER

    def _queue(self, number: int) -> SimQueue:
        load = self.load
        key = (load.tenant[number], load.group[number], load.band[number])
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SimQueue(load.tenants[key[0]].name, key[1], key[2])
        return queue

    def head_at(self, queue: SimQueue) -> int:
        """When the queue's head was put; for a scheduler that goes by age."""
        return self.load.at[queue.waiting[0]]


def simulate(load: Load, make: Callable[[int, Callable[[SimQueue], int]], Scheduler[SimQueue]], slots: int) -> Trace:
    """Run a load to its end; `make(slots, arrived_at)` gives the scheduler."""
    simulator: Simulator

    def arrived_at(queue: SimQueue) -> int:
        return simulator.head_at(queue)

    simulator = Simulator(load, make(slots, arrived_at), slots)
    return simulator.run()
