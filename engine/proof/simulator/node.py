"""A node of the simulator: a production scheduler in front of W slots, and the queues that lie on its partitions."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.node.queues.quota_share import share_of
from evenlane.engine.proof.simulator.wire import NOT_DUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.node.queues.quota_share import NodeShare
    from evenlane.engine.proof.arms import Make
    from evenlane.engine.proof.load.load import LoadTenant
    from evenlane.engine.proof.load.trace import Trace


class SpinError(AssertionError):
    """The scheduler has nothing to give now and asks to be asked again now."""


class SimQueue:
    """A queue as the scheduler sees it, with the numbers of its messages."""

    __slots__ = ("band", "group", "project", "slot", "waiting")

    def __init__(self, project: str, group: int, band: int) -> None:
        self.project, self.group, self.band = project, group, band
        self.slot: object | None = None
        self.waiting: deque[int] = deque()


class KnownTopic(NamedTuple):
    """A topic, and the node's share of it."""

    tenant: LoadTenant
    own: NodeShare


class SimNode:
    """A node. `make(slots, arrived_at)` returns its scheduler. `due` is the next instant (ns) at which it has something
    to do without an outside event. `trace` is that of all nodes.
    """

    def __init__(self, number: int, make: Make, slots: int, trace: Trace) -> None:
        self.number, self.free, self.trace = number, slots, trace
        self.scheduler: Scheduler[SimQueue] = make(slots, self.head_at)
        self.due = 0
        self.queues: dict[tuple[int, int, int], SimQueue] = {}  # by tenant, group and band
        self.known: dict[str, KnownTopic] = {}
        self._of_project: dict[str, list[SimQueue]] = {}
        self._running: list[tuple[int, int, int, SimQueue]] = []  # (end, order of start, message, queue)
        self._starts = 0

    def learn(self, tenant: LoadTenant, own: NodeShare) -> None:
        """Learn a topic, and the node's share of it."""
        self.known[tenant.name] = KnownTopic(tenant, own)

    def configure(self, project: str, part: float, now: int) -> None:
        """Apply the topic's rules from `now` on, for a node that has this `part` of the topic."""
        tenant, own = self.known[project]
        self.scheduler.configure(project, share_of(tenant.topic, own, part), now, tenant.topic.qps)
        self.due = min(self.due, now)

    def busy(self) -> Iterable[str]:
        """The topics that ever had a message."""
        return self._of_project

    def backlog(self, project: str) -> tuple[int, int]:
        """The number of messages, and of groups that have any."""
        waiting = [queue for queue in self._of_project[project] if queue.waiting]
        return sum(len(queue.waiting) for queue in waiting), len({queue.group for queue in waiting})

    def receive(self, number: int, now: int) -> None:
        """Receive a message."""
        load = self.trace.load
        key = (load.tenant[number], load.group[number], load.band[number])
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = SimQueue(load.tenants[key[0]].name, key[1], key[2])
            self._of_project.setdefault(queue.project, []).append(queue)
        queue.waiting.append(number)
        if len(queue.waiting) == 1:
            self.scheduler.ready(queue, now)
        self.due = now

    def end_handlers(self, now: int) -> None:
        running, done, started = self._running, self.scheduler.finish, self.trace.started
        while running and running[0][0] <= now:
            _end, _order, number, queue = heappop(running)
            self.free += 1
            done(queue, now, now - started[number])

    def start_handlers(self, now: int) -> None:
        """Start all handlers that may start. Raises SpinError."""
        scheduler, trace, running = self.scheduler, self.trace, self._running
        while self.free and (queue := start_next(scheduler, now)) is not None:
            number = queue.waiting.popleft()
            if not queue.waiting:
                scheduler.empty(queue, now)
            trace.node[number] = self.number
            trace.started[number] = now
            trace.ended[number] = end = now + trace.load.service[number]
            self.free -= 1
            self._starts += 1
            heappush(running, (end, self._starts, number, queue))
        self.due = running[0][0] if running else NOT_DUE
        if self.free and (wake := scheduler.wake_at()) is not None:
            if wake <= now:
                raise SpinError(f"nothing may go at {now} ns, yet the scheduler wants to be asked at {wake} ns")
            self.due = min(self.due, wake)

    def head_at(self, queue: SimQueue) -> int:
        """Return the time at which the queue's head was put; for a scheduler by age."""
        return self.trace.load.at[queue.waiting[0]]
