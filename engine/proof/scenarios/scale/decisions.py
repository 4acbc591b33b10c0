"""The cost of a scheduler's decision: `next` and `finish`, with W messages in flight, on a virtual clock.

`load` is the rate of decisions, as a fraction of the rate that the quotas of all busy tenants allow together. Below 1
some tenant may always go; above it all are parked most of the time, and the timers are part of the work.
"""

from __future__ import annotations

import sys
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.proof.load.arrivals import SECOND
from evenlane.engine.proof.load.load import tenant
from evenlane.engine.proof.simulator.node import SimQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from evenlane.engine.core.scheduler.interface import Scheduler

SLOTS = 50
BANDS = 3
_QPS = 100


class Crowd:
    """The queues: `queues` in total, three for the one group of each tenant. `busy` of them have an endless backlog;
    each of the others has had one message.
    """

    def __init__(self, scheduler: Scheduler[SimQueue], queues: int, busy: int, load: float = 0.5) -> None:
        self._scheduler = scheduler
        self._in_flight: deque[SimQueue] = deque()
        self._now = 0
        everyone = self._make(queues // BANDS)
        self._handle_one_each(everyone)
        chosen = everyone if busy >= len(everyone) else everyone[1 :: len(everyone) // busy][:busy]
        self._step = int(SECOND / (load * _QPS * len({queue.project for queue in chosen})))
        for queue in chosen:
            scheduler.ready(queue, self._now)
        self._decide(SLOTS + 2 * len(chosen))

    def _make(self, tenants: int) -> list[SimQueue]:
        topic = tenant("any", qps=_QPS, groups=1).topic
        names = [f"tenant-{number}" for number in range(tenants)]
        for name in names:
            self._scheduler.configure(name, topic, 0)
        return [SimQueue(name, 0, band) for name in names for band in range(BANDS)]

    def _handle_one_each(self, queues: list[SimQueue]) -> None:
        for queue in queues:
            self._scheduler.ready(queue, self._now)
            while start_next(self._scheduler, self._now) is not queue:
                self._now += SECOND // _QPS
            self._scheduler.empty(queue, self._now)
            self._scheduler.finish(queue, self._now, 1)

    def _decide(self, count: int) -> None:
        """Decide `count` times, the oldest message in flight ending before each."""
        next_, done, running, step = self._scheduler.next, self._scheduler.finish, self._in_flight, self._step
        now, service = self._now, SLOTS * step
        while count:
            now += step
            if len(running) >= SLOTS:
                done(running.popleft(), now, service)
            grant = next_(now)
            if grant is not None:
                grant.commit(now)
                running.append(grant.queue)
                count -= 1
            else:
                now = max(now, self._scheduler.wake_at() or now)
        self._now = now

    def cost(self, decisions: int) -> float:
        """Measure in real time, in us per decision."""
        began = perf_counter_ns()
        self._decide(decisions)
        return (perf_counter_ns() - began) / decisions / 1e3

    def steps(self, decisions: int) -> float:
        """Count bytecode instructions per decision: without noise, and every scan shows."""
        return count_steps(lambda: self._decide(decisions)) / decisions


def count_steps(work: Callable[[], object]) -> int:
    """Count the bytecode instructions that Python executes for `work`; the inside of C functions isn't seen."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
