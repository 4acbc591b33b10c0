"""Heaps of waiting tenants, with lazy deletion. One entry per tenant is valid; it is updated when it reaches the top,
so changes in between cost nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import Q
from evenlane.priority.fair import Line
from evenlane.quota.rates.gcra import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.scheduler.tenant import Tenant


class Timers(Generic[Q]):
    """Parked tenants by the instant (ns) at which their quota admits the next message."""

    __slots__ = ("_count", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, Tenant[Q]]] = []
        self._count = 0

    def park(self, tenant: Tenant[Q], until: int) -> None:
        tenant.parked = until
        if until < NEVER and until != tenant.timer:
            tenant.timer = until
            self._count += 1
            heappush(self.entries, (until, self._count, tenant))

    def due(self, now: int) -> Iterator[Tenant[Q]]:
        """Unpark and yield the tenants whose time has come."""
        entries = self.entries
        while entries and entries[0][0] <= now:
            tenant = self._pop()
            if tenant.parked and tenant.parked <= now:
                tenant.parked = 0
                yield tenant

    def first(self) -> int:
        """The next instant of a valid entry; NEVER if there is none."""
        entries = self.entries
        while entries and entries[0][2].parked != entries[0][0]:
            self._pop()
        return entries[0][0] if entries else NEVER

    def _pop(self) -> Tenant[Q]:
        until, _, tenant = heappop(self.entries)
        if tenant.timer == until:
            tenant.timer = 0
        return tenant


class LevelHeap(Line["Tenant[Q]"], Generic[Q]):
    """Tenants that wait for headroom, by start tag and by level, that is, by slots held per weight."""

    __slots__ = ("_count", "_levels")

    def __init__(self) -> None:
        super().__init__()
        self._levels: list[tuple[float, int, Tenant[Q]]] = []
        self._count = 0

    def enter(self, flow: Tenant[Q]) -> None:
        super().enter(flow)
        self.note(flow)

    def note(self, tenant: Tenant[Q]) -> None:
        """Add an entry if the tenant's level has fallen below its noted level."""
        level = tenant.level
        if tenant.noted_level is None or level < tenant.noted_level:
            tenant.noted_level = level
            self._count += 1
            heappush(self._levels, (level, self._count, tenant))

    def lowest(self) -> Tenant[Q] | None:
        levels = self._levels
        while levels:
            level, _, tenant = levels[0]
            counts = tenant.noted_level == level
            if counts and tenant.line is self and tenant.level == level:
                return tenant
            heappop(levels)
            if counts:
                tenant.noted_level = None
                if tenant.line is self:
                    self.note(tenant)
        return None


class ReserveHeap(Generic[Q]):
    """Tenants with a reserve that are in a line, by the instant (ns) at which the reserve admits their next message."""

    __slots__ = ("_count", "entries")

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, Tenant[Q]]] = []
        self._count = 0

    def enter(self, tenant: Tenant[Q]) -> None:
        if tenant.reserve is not None and not tenant.reserve_ticket:
            self._count += 1
            tenant.reserve_ticket = self._count
            heappush(self.entries, (tenant.reserve_at, self._count, tenant))

    def first(self, now: int) -> Tenant[Q] | None:
        """The tenant that has been within its reserve for the longest; None if none is."""
        entries = self.entries
        while entries and entries[0][0] <= now:
            _, ticket, tenant = entries[0]
            counts = tenant.reserve_ticket == ticket
            if counts and tenant.line is not None and tenant.reserve_at <= now:
                return tenant
            heappop(entries)
            if counts:
                tenant.reserve_ticket = 0
                if tenant.line is not None:
                    self.enter(tenant)
        return None
