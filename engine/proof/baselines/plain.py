"""The plainest right scheduler: strict priority inside a group (E5), groups in turn."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import NOTHING_USED, Grant, Q

if TYPE_CHECKING:
    from evenlane.engine.core.scheduler.interface import Used
    from evenlane.quota.topics.topic import Topic


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


class PlainScheduler(Generic[Q]):
    """Every call is O(1), but `configure`, which is O(groups of the topic)."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant[Q]] = {}
        self._turn: deque[_Group[Q]] = deque()
        self._grant: Grant[Q] = Grant()

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
                self._grant.queue = group.bands[(mask & -mask).bit_length() - 1]
                return self._grant
            turn.popleft()
            group.queued = False
        return None

    def again(self, queue: Q, now: int) -> Grant[Q] | None:  # noqa: ARG002
        group = queue.slot
        if not isinstance(group, _Group) or not group.tenant.active:
            return None
        lowest = group.mask & -group.mask
        if lowest != 1 << queue.band:
            return None
        self._grant.queue = queue
        return self._grant

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        """Nothing was charged."""

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        """Nothing was charged."""

    def used(self, project: str, now: int) -> Used:  # noqa: ARG002
        return NOTHING_USED

    def wake_at(self) -> int | None:
        return None

    def why(self, queue: Q, now: int) -> str | None:  # noqa: ARG002
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
