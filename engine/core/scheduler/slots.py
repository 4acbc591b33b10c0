"""Accounts for the node's slots, and decides which tenant may have one more (docs/explanation/scheduling.md, Slots)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from evenlane.priority.headroom import LINGER, Average, opens_in, room
from evenlane.quota.rates.gcra import NEVER

if TYPE_CHECKING:
    from typing import Any

    from evenlane.engine.core.scheduler.tenant import Tenant

_A_BIT = 1e-6  # turns "at most" into "less than"
_SOON = 5_000_000  # ns; the least wait for an instant that moves with each call


class Slots:
    """The node's `count` slots, `in_flight` of them taken. Without `headroom`, every tenant may always have one more.

    Invariants:
    - A tenant is *busy* while it has a ready message and isn't parked, or has a message in flight. It is *active* while
      it is busy and for a moment afterwards; `_active_weights` is the sum of the active tenants' weights.
    - Each tenant in `leaving` has exactly one entry there (`Tenant.leaving`). A tenant that became busy again keeps its
      entry, which is then ignored.
    - `_heavy` and `_heavy_weights` cover the tenants with `Tenant.heavy`; `_light` follows the slots of all others.
    - While a single tenant is active, its slots aren't counted: it is `_lone`, and is counted once another joins.
    """

    __slots__ = (
        "_active_weights", "_headroom", "_heavy", "_heavy_weights", "_light", "_lone", "_marks", "active", "busy",
        "count", "in_flight", "leaving",
    )  # fmt: skip

    def __init__(self, count: int, *, headroom: bool) -> None:
        self.count, self._headroom = count, headroom
        self.in_flight = 0
        self.busy = 0  # number of busy tenants
        self.active = 0  # number of active tenants
        self._active_weights = 0.0
        self.leaving: list[tuple[int, int, Tenant[Any]]] = []  # by the time (ns) at which they become inactive
        self._marks = 0
        self._heavy = 0
        self._heavy_weights = 0.0
        self._lone: Tenant[Any] | None = None  # its count may be out of date
        self._light = Average(0)  # slots of all light tenants

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self.count

    def reweigh(self, tenant: Tenant[Any], weight: float) -> None:
        """Prepare for a change of the tenant's weight; the caller sets it afterwards."""
        if tenant.active:
            self._active_weights += weight - tenant.weight
        if tenant.heavy:
            self._heavy_weights += weight - tenant.weight

    def enter(self, tenant: Tenant[Any]) -> None:
        """Make the tenant busy."""
        tenant.busy = True
        self.busy += 1
        if not tenant.active:
            tenant.active = True
            self.active += 1
            self._active_weights += tenant.weight

    def leave(self, tenant: Tenant[Any], now: int) -> None:
        """Make the tenant idle. It stays active for a while, so that a tenant with an occasional message doesn't find
        all slots taken each time.
        """
        tenant.busy = False
        self.busy -= 1
        if tenant.heavy:
            self._set_heavy(tenant, False, now)
        self._set_light(tenant, 0, now)
        tenant.leaves_at = now + LINGER
        if not tenant.leaving:
            self._note_leaving(tenant)

    def expire(self, now: int) -> None:
        """Make tenants inactive that have been idle for long enough."""
        while self.leaving and self.leaving[0][0] <= now:
            tenant = heappop(self.leaving)[2]
            tenant.leaving = False
            if tenant.busy:
                continue
            if tenant.leaves_at > now:
                self._note_leaving(tenant)
                continue
            tenant.active = False
            self.active -= 1
            self._active_weights -= tenant.weight
            if not self.active:
                self._active_weights = 0.0  # so that rounding errors can't add up

    def _note_leaving(self, tenant: Tenant[Any]) -> None:
        tenant.leaving = True
        self._marks += 1
        heappush(self.leaving, (tenant.leaves_at, self._marks, tenant))

    def is_heavy(self, tenant: Tenant[Any]) -> bool:
        """Whether a tenant that wants more holds its fair share of the slots, max(1, floor(W w / sum w))."""
        held = tenant.in_flight
        return held > 0 and (held + 1) * self._active_weights > self.count * tenant.weight

    def recount(self, tenant: Tenant[Any], now: int) -> None:
        """Classify the tenant as heavy or light again, and count its slots among the light ones if it is light.

        A heavy tenant that wants more and has just lost a slot stays heavy. A lone tenant's slots are irrelevant; they
        are counted when another tenant joins.
        """
        if not self._headroom:
            return
        if self.active < 2:
            if tenant.active:
                self._lone = tenant
            return
        if self._lone is not None:
            lone, self._lone = self._lone, None
            self.recount(lone, now)
        count = tenant.in_flight
        heavy = tenant.heavy
        if tenant.line is None:
            heavy = heavy and self._has_much(tenant, now)
        elif (count + 1) * self._active_weights > self.count * tenant.weight:
            heavy = heavy or count > 0
        elif 2 * count * self._active_weights < self.count * tenant.weight:
            heavy = False
        if heavy is not tenant.heavy:
            self._set_heavy(tenant, heavy, now)
        if heavy:
            count = 0
        self._set_light(tenant, count, now)

    def has_room(self, tenant: Tenant[Any], now: int) -> bool:
        """Whether the tenant may take one more slot: it is below its fair share, or below its share of the slots for
        heavy tenants, or enough slots stay free for the light ones.
        """
        # (`is_heavy`, inlined to save a call per message)
        if not self._headroom or (tenant.in_flight + 1) * self._active_weights <= self.count * tenant.weight:
            return True
        if not tenant.in_flight:
            return True
        for_heavy = float(self.count)
        if self.active > self._heavy + (not tenant.heavy):  # there are light tenants
            for_heavy -= room(self._light.read(now))
        if self.in_flight - self._light.count < for_heavy:
            return True
        weights = self._heavy_weights if tenant.heavy else self._heavy_weights + tenant.weight
        return tenant.level * weights <= for_heavy

    def opens_at(self, level: float | None, now: int) -> int:
        """The instant (ns) at which headroom admits a held tenant if nothing else happens, because the light tenants
        have held few slots for long enough. `level` is the lowest level of the held tenants.
        """
        held = float(self.in_flight - self._light.count)
        if level is not None:
            held = min(held, level * self._heavy_weights - _A_BIT)
        wait = opens_in(self._light.read(now), self._light.count, held, self.count)
        opens = NEVER if wait is None else now + max(wait, _SOON)
        return min(opens, self.leaving[0][0]) if self.leaving else opens

    def _has_much(self, tenant: Tenant[Any], now: int) -> bool:
        """Whether the slots of a heavy tenant that is idle for a moment would look like those of many light ones.

        They do if they are at least half of its fair share, and its fair share is two slots or more. For a tenant that
        headroom has held back, half of its share of the slots for heavy tenants suffices, too.
        """
        twice, share = 2 * tenant.in_flight, self.count * tenant.weight
        if not tenant.parked and share >= 2 * self._active_weights and twice * self._active_weights >= share:
            return True
        if not tenant.was_held:
            return False
        return twice * self._heavy_weights >= (self.count - room(self._light.read(now))) * tenant.weight

    def _set_heavy(self, tenant: Tenant[Any], heavy: bool, now: int) -> None:
        """Change the classification. The history of a tenant's slots moves with it: heavy tenants needn't leave room
        for the slots that another heavy tenant held while it was light.
        """
        tenant.heavy = heavy
        tenant.was_held = False
        self._heavy += 1 if heavy else -1
        self._heavy_weights += tenant.weight if heavy else -tenant.weight
        if not self._heavy:
            self._heavy_weights = 0.0
        if tenant.light is not None:
            own = tenant.light.read(now)
            self._light.add(-own if heavy else own, now)

    def _set_light(self, tenant: Tenant[Any], count: int, now: int) -> None:
        own = tenant.light
        if own is None:
            if not count:
                return
            own = tenant.light = Average(now)
        if by := count - own.count:
            own.move(by, now)
            self._light.move(by, now)
