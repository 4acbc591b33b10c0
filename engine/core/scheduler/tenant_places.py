"""The places where tenants wait for their turn.

A tenant is in exactly one of four places:

- none: it has no ready message, is paused, or has as many in flight as its topic allows
- parked in the heap of timers: its quota is exhausted for the moment
- in `_line`, by start tag: it is eligible
- in `_awaiting_headroom`, by start tag and by level: it has its fair share of the slots, and the rest is reserved for
  light tenants
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import Q
from evenlane.engine.core.scheduler.timers import LevelHeap, ReserveHeap, Timers
from evenlane.priority.fair import Line
from evenlane.quota.rates.gcra import NEVER

if TYPE_CHECKING:
    from evenlane.engine.core.scheduler.slots import Slots
    from evenlane.engine.core.scheduler.tenant import Tenant
    from evenlane.priority.fair import VirtualTime


class TenantPlaces(Generic[Q]):
    """Moves tenants between their places, and finds the tenant whose turn it is.

    `FairScheduler` extends it instead of wrapping it, because it runs for each message: a second object would cost a
    call and several attribute loads.
    """

    def __init__(self, slots: Slots, virtual: VirtualTime) -> None:
        self._slots, self._virtual = slots, virtual
        self._line: Line[Tenant[Q]] = Line()
        self._awaiting_headroom: LevelHeap[Q] = LevelHeap()
        self._timers: Timers[Q] = Timers()
        self._reserved: ReserveHeap[Q] = ReserveHeap()
        self._refused: Tenant[Q] | None = None  # the first tenant that the last `next` skipped for want of headroom
        self._now = 0  # the time of the last `next`

    # ---- the next tenant

    def _first(self, now: int) -> Tenant[Q] | None:
        """The tenant whose turn it is: one within its reserve, else by start tag, as far as headroom allows."""
        self._refused = None
        if self._reserved.entries and (reserved := self._reserved.first(now)) is not None:
            return reserved
        candidate = self._awaiting_headroom.first() if self._awaiting_headroom.entries else None
        if candidate is not None and not self._slots.has_room(candidate, now):
            self._refused = candidate
            candidate = self._below_level(now)
        while True:
            first = self._line.first()
            if candidate is not None and (first is None or candidate.start < first.start):
                return candidate
            if first is None or not first.in_flight or self._slots.has_room(first, now):
                return first
            self._awaiting_headroom.enter(first)
            self._slots.recount(first, now)
            first.was_held = True
            if self._refused is None or first.start < self._refused.start:
                self._refused = first

    def _below_level(self, now: int) -> Tenant[Q] | None:
        """The tenant that waits for headroom and has the lowest level, if it is below its share of the slots for heavy
        tenants.
        """
        lowest = self._awaiting_headroom.lowest()
        return lowest if lowest is not None and self._slots.has_room(lowest, now) else None

    def wake_at(self) -> int | None:
        wake = self._timers.first()
        refused = self._refused
        if refused is not None and refused.line is self._awaiting_headroom:
            lowest = self._awaiting_headroom.lowest()
            wake = min(wake, self._slots.opens_at(lowest.level if lowest else None, self._now))
            if self._reserved.entries:
                wake = min(wake, max(self._reserved.entries[0][0], self._now + 1))
        return wake if wake < NEVER else None

    # ---- changes

    def _place(self, tenant: Tenant[Q], now: int) -> None:
        """Move a tenant to its place after any change."""
        wants = tenant.open and tenant.quota.ready > 0 and not tenant.parked
        busy = wants or tenant.in_flight > 0
        if busy and not tenant.busy:
            self._slots.enter(tenant)
        elif tenant.busy and not busy:
            self._slots.leave(tenant, now)
            # a parked tenant whose time has come waits, too, although `next` hasn't woken it yet
            self._virtual.leave(tenant, last=not self._slots.busy and self._timers.first() > now)
        if not wants or tenant.is_full:
            tenant.line = None
        elif tenant.line is None or (tenant.line is self._awaiting_headroom and not self._slots.is_heavy(tenant)):
            self._line.enter(tenant)
            self._reserved.enter(tenant)
        elif tenant.line is self._awaiting_headroom:
            self._awaiting_headroom.note(tenant)
        self._slots.recount(tenant, now)

    def _park(self, tenant: Tenant[Q], until: int, now: int) -> None:
        self._timers.park(tenant, until)
        self._place(tenant, now)

    def _wake(self, now: int) -> None:
        """Apply the changes that time alone brings."""
        self._slots.expire(now)
        for tenant in self._timers.due(now):
            self._virtual.catch_up(tenant)
            self._place(tenant, now)

    def _leaves_slot(self, tenant: Tenant[Q]) -> None:
        if tenant.concurrency is not None and tenant.line is None:
            self._virtual.catch_up(tenant)
        tenant.in_flight -= 1
        self._slots.in_flight -= 1

    def _settle_down(self, tenant: Tenant[Q], now: int) -> None:
        if tenant.line is self._line:
            if tenant.start < tenant.noted:
                self._line.on_fall(tenant)
            if tenant.in_flight or not tenant.heavy:
                self._slots.recount(tenant, now)
        else:
            self._place(tenant, now)
