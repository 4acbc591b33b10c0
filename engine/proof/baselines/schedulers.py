"""Schedulers that the product is compared with: unfair, blind to rules, or slow."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic

from msgspec.structs import replace

from evenlane.engine.core.scheduler.interface import NOTHING_USED, Grant, Q

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import QuotaUse, Scheduler
    from evenlane.quota.topics.topic import Topic


class RulelessScheduler(Generic[Q]):
    """No quota, no weight, no timer. A subclass decides which queues are ready and in which order they go."""

    def __init__(self) -> None:
        self._grant: Grant[Q] = Grant()

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        """There are no rules."""

    def save_up(self, project: str, batch: int) -> None:
        """There is no quota."""

    def finish(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """Nothing was charged."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """Nothing was charged."""

    def affords_at(self, queue: Q, now: int, count: int) -> int:  # noqa: ARG002
        return now

    def measure_use(self, project: str, now: int) -> QuotaUse:  # noqa: ARG002
        return NOTHING_USED

    def wake_at(self) -> int | None:
        return None

    def _fill_grant(self, queue: Q) -> Grant[Q]:
        self._grant.queue = queue
        return self._grant


class _QueueSlot:
    """A queue's state: whether it is ready, and which of its entries in the order is valid."""

    __slots__ = ("entry", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.entry = 0


class FifoScheduler(RulelessScheduler[Q]):
    """First come, first served. `arrived_at(queue)` returns the arrival of the queue's head, on any one scale."""

    def __init__(self, arrived_at: Callable[[Q], int]) -> None:
        super().__init__()
        self._arrived_at = arrived_at
        self._order: list[tuple[int, int, Q]] = []
        self._taken: Q | None = None  # its head has changed since it was put in order
        self._count = 0

    def ready(self, queue: Q, now: int) -> None:  # noqa: ARG002
        place = queue.slot
        if not isinstance(place, _QueueSlot):
            place = queue.slot = _QueueSlot()
        if not place.ready:
            place.ready = True
            self._enter(queue, place)

    def empty(self, queue: Q, now: int) -> None:  # noqa: ARG002
        if isinstance(queue.slot, _QueueSlot):
            queue.slot.ready = False

    def next(self, now: int) -> Grant[Q] | None:  # noqa: ARG002
        self._order_taken()
        while self._order:
            _, entry, queue = heappop(self._order)
            place = queue.slot
            if isinstance(place, _QueueSlot) and place.ready and place.entry == entry:
                self._taken = queue
                return self._fill_grant(queue)
        return None

    def grant_again(self, queue: Q, now: int) -> Grant[Q] | None:
        raise NotImplementedError("the control takes no batches")

    def wait_reason(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
        return "handlers_busy" if isinstance(queue.slot, _QueueSlot) and queue.slot.ready else None

    def _order_taken(self) -> None:
        """Order the queue that was handed out last by its new head, which its owner has taken by now."""
        queue, self._taken = self._taken, None
        if queue is not None and isinstance(queue.slot, _QueueSlot) and queue.slot.ready:
            self._enter(queue, queue.slot)

    def _enter(self, queue: Q, place: _QueueSlot) -> None:
        self._count += 1
        place.entry = self._count
        heappush(self._order, (self._arrived_at(queue), self._count, queue))


def stored_at(queue: Queue) -> int:
    """Return the time at which the store took the queue's first prefetched message, unix ns."""
    return queue.ready[0][2]


class _Group(Generic[Q]):
    """`mask` has bit b set while the queue of band b is ready; the lowest bit is the highest priority."""

    __slots__ = ("bands", "mask", "queued", "tenant")

    def __init__(self, tenant: _Tenant[Q]) -> None:
        self.tenant = tenant
        self.mask = 0
        self.bands: dict[int, Q] = {}
        self.queued = False


class _Tenant(Generic[Q]):
    __slots__ = ("active", "groups")

    def __init__(self) -> None:
        self.groups: dict[int, _Group[Q]] = {}
        self.active = False


class PlainScheduler(RulelessScheduler[Q]):
    """Strict priority inside a group, groups in turn. Every call is O(1), except `configure`, which is O(groups of the
    topic).
    """

    def __init__(self) -> None:
        super().__init__()
        self._tenants: dict[str, _Tenant[Q]] = {}
        self._turn: deque[_Group[Q]] = deque()

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:  # noqa: ARG002
        tenant = self._tenant(project)
        tenant.active = topic is not None and topic.state != "paused"
        for group in tenant.groups.values():
            self._enqueue(group)

    def ready(self, queue: Q, now: int) -> None:  # noqa: ARG002
        group = queue.slot
        if not isinstance(group, _Group):
            group = queue.slot = self._group(queue)
        group.bands[queue.band] = queue
        group.mask |= 1 << queue.band
        self._enqueue(group)

    def empty(self, queue: Q, now: int) -> None:  # noqa: ARG002
        if isinstance(queue.slot, _Group):
            queue.slot.mask &= ~(1 << queue.band)

    def next(self, now: int) -> Grant[Q] | None:  # noqa: ARG002
        turn = self._turn
        while turn:
            group = turn[0]
            mask = group.mask
            if mask and group.tenant.active:
                turn.rotate(-1)
                return self._fill_grant(group.bands[(mask & -mask).bit_length() - 1])
            turn.popleft()
            group.queued = False
        return None

    def grant_again(self, queue: Q, now: int) -> Grant[Q] | None:  # noqa: ARG002
        group = queue.slot
        if not isinstance(group, _Group) or not group.tenant.active:
            return None
        lowest = group.mask & -group.mask
        return self._fill_grant(queue) if lowest == 1 << queue.band else None

    def wait_reason(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
        group = queue.slot
        if not isinstance(group, _Group):
            return None
        if not group.tenant.active:
            return "paused"
        return "higher_priority" if group.mask & ((1 << queue.band) - 1) else "handlers_busy"

    def _tenant(self, project: str) -> _Tenant[Q]:
        tenant = self._tenants.get(project)
        if tenant is None:
            tenant = self._tenants[project] = _Tenant()
        return tenant

    def _group(self, queue: Q) -> _Group[Q]:
        tenant = self._tenant(queue.project)
        group = tenant.groups.get(queue.group)
        if group is None:
            group = tenant.groups[queue.group] = _Group(tenant)
        return group

    def _enqueue(self, group: _Group[Q]) -> None:
        if group.mask and group.tenant.active and not group.queued:
            group.queued = True
            self._turn.append(group)


class ScanningScheduler(RulelessScheduler[Q]):
    """Asks the queues in turn whether they are ready: a decision costs O(queues that were ever used)."""

    def __init__(self) -> None:
        super().__init__()
        self._queues: list[Q] = []
        self._ready: set[int] = set()
        self._turn = 0

    def ready(self, queue: Q, now: int) -> None:  # noqa: ARG002
        if queue.slot is None:
            queue.slot = len(self._queues)
            self._queues.append(queue)
        self._ready.add(id(queue))

    def empty(self, queue: Q, now: int) -> None:  # noqa: ARG002
        self._ready.discard(id(queue))

    def next(self, now: int) -> Grant[Q] | None:  # noqa: ARG002
        for _ in self._queues:
            self._turn = (self._turn + 1) % len(self._queues)
            queue = self._queues[self._turn]
            if id(queue) in self._ready:
                return self._fill_grant(queue)
        return None

    def grant_again(self, queue: Q, now: int) -> Grant[Q] | None:  # noqa: ARG002
        return self._fill_grant(queue) if id(queue) in self._ready else None

    def wait_reason(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
        return "handlers_busy" if id(queue) in self._ready else None


class WholeQuota:
    """Replaces a node's scheduler, and multiplies the node's share of each quota by the number of `nodes`."""

    def __init__(self, scheduler: Scheduler[Any], nodes: int) -> None:
        self._scheduler, self._nodes = scheduler, nodes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        more = None if topic is None else replace(topic, qps=topic.qps * self._nodes)
        self._scheduler.configure(project, more, now, whole)
