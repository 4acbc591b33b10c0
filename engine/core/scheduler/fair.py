"""The scheduler: combines quota, strict priority and fairness between tenants, from the parts in `quota` and
`priority`.

`next` first wakes the tenants whose time has come, then takes the first of those that may start a message
(`tenant_places`). A decision costs O(log active tenants + log ready groups of one tenant); idle queues cost nothing.
docs/explanation/scheduling.md derives the bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.scheduler.interface import NOTHING_USED, Grant, Q, QuotaUse
from evenlane.engine.core.scheduler.slots import Slots
from evenlane.engine.core.scheduler.tenant import QueueGroup, Tenant
from evenlane.engine.core.scheduler.tenant_places import TenantPlaces
from evenlane.priority.fair import VirtualTime

if TYPE_CHECKING:
    from evenlane.quota.topics.topic import Topic

_MAX_GROUP_QPS = 150.0
_ENDED = "this grant has ended: it was committed or cancelled"


class FairScheduler(TenantPlaces[Q]):
    """The scheduler that nodes use. `concurrency` is the node's number of slots, `max_group_qps` the highest rate
    (msg/s) that one group may reach by borrowing.

    Two switches exist for comparisons: without `fair`, tenants take turns whatever their weight and service time;
    without `headroom`, no slots are reserved for light tenants.

    Invariant: at most one grant is open. `_granted` and `_band` say whom it charges; `_granted` is None once it was
    committed or cancelled. The next decision replaces an open grant.
    """

    def __init__(
        self, concurrency: int, max_group_qps: float = _MAX_GROUP_QPS, *, fair: bool = True, headroom: bool = True
    ) -> None:
        super().__init__(Slots(concurrency, headroom=headroom), VirtualTime(fair=fair))
        self._max_group_qps = max_group_qps
        self._tenants: dict[str, Tenant[Q]] = {}
        self._granted: QueueGroup[Q] | None = None
        self._band = 0
        self._grant: Grant[Q] = Grant(self._commit, self._cancel)
        self._grant_again: Grant[Q] = Grant(self._commit_again, self._cancel)

    # ---- rules and arrivals

    def configure(self, project: str, topic: Topic | None, now: int, whole: float | None = None) -> None:
        tenant = self._tenant(project)
        tenant.open = topic is not None and topic.state != "paused"
        if topic is None:
            tenant.quota.rest()
        else:
            tenant.configure(topic, self._max_group_qps, now, whole)
            self._slots.reweigh(tenant, topic.weight)
            self._virtual.reweigh(tenant, topic.weight)
        tenant.parked = 0
        tenant.line = None
        self._virtual.catch_up(tenant)
        self._place(tenant, now)

    def save_up(self, project: str, batch: int) -> None:
        self._tenant(project).batch = batch

    def ready(self, queue: Q, now: int) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup):
            group = queue.slot = self._tenant(queue.project).group(queue.group)
        before = group.mask
        group.fill(queue)
        if before:
            return
        tenant = group.tenant
        quota = tenant.quota
        quota.enter(group, now)
        if quota.ready == 1:
            self._virtual.catch_up(tenant)
            self._place(tenant, now)
        elif tenant.parked and quota.at <= now:
            tenant.parked = 0  # the new group may conform earlier than those that set the timer
            self._virtual.catch_up(tenant)
            self._place(tenant, now)

    def empty(self, queue: Q, now: int) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask:
            return
        group.drain(queue)
        if not group.mask:
            tenant = group.tenant
            tenant.quota.leave(group)
            if not tenant.quota.ready:
                tenant.parked = 0
                self._place(tenant, now)

    # ---- decisions

    def next(self, now: int) -> Grant[Q] | None:
        self._now = now
        timers, leaving = self._timers.entries, self._slots.leaving
        if (timers and timers[0][0] <= now) or (leaving and leaving[0][0] <= now):
            self._wake(now)
        line, slots = self._line, self._slots
        entries = line.entries
        self._refused = None
        while True:
            tenant: Tenant[Q] | None
            if entries and not self._awaiting_headroom.entries and not self._reserved.entries:
                # the common case of `_first`, inlined to save a call per decision
                start, ticket, tenant = entries[0]
                if (
                    tenant.ticket != ticket
                    or tenant.start != start
                    or tenant.line is not line
                    or (tenant.in_flight and not slots.has_room(tenant, now))
                ):
                    tenant = self._first(now)
            else:
                tenant = self._first(now)
            if tenant is None:
                return None
            quota = tenant.quota
            group = quota.choose(now)
            if group is None:
                self._park(tenant, quota.wakes_at, now)
                continue
            mask = group.mask
            band = (mask & -mask).bit_length() - 1 if group.ageing is None else group.ageing.choose(mask)
            self._granted, self._band = group, band
            grant = self._grant
            grant.queue = group.queues[band]
            return grant

    def _commit(self, now: int) -> None:
        """Charge the grant of `next`: one message and one slot."""
        group = self._granted
        if group is None:
            raise RuntimeError(_ENDED)
        self._granted = None
        tenant = group.tenant
        quota = tenant.quota
        tenant.in_flight += 1
        self._slots.in_flight += 1
        # the common case of `_charge`, inlined to save a call per message
        if tenant.reserve is None and group.ageing is None:
            self._virtual.charge(tenant, tenant)
            quota.spend(group, now)
        else:
            self._charge(tenant, group, self._band, now)
        if group.others is not None:
            group.turn(self._band)
        if quota.at > now:
            self._park(tenant, quota.at, now)
        elif tenant.concurrency is not None:
            self._place(tenant, now)
        else:
            self._line.on_charge(tenant)
            if not tenant.heavy:  # one more slot can't make a heavy tenant light
                self._slots.recount(tenant, now)

    def _cancel(self) -> None:
        self._granted = None

    def grant_again(self, queue: Q, now: int) -> Grant[Q] | None:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask or group.band() != queue.band:
            return None
        tenant = group.tenant
        if not tenant.open or tenant.is_full or not tenant.quota.may_admit(group, now):
            return None
        self._granted, self._band = group, queue.band
        self._grant_again.queue = queue
        return self._grant_again

    def affords_at(self, queue: Q, now: int, count: int) -> int:
        group = queue.slot
        return group.tenant.quota.affords_at(group, now, count) if isinstance(group, QueueGroup) else now

    def _commit_again(self, now: int) -> None:
        """Charge the grant of `grant_again`: one more message, in a slot that is charged already."""
        group = self._granted
        if group is None:
            raise RuntimeError(_ENDED)
        self._granted = None
        self._charge(group.tenant, group, self._band, now)
        self._place(group.tenant, now)

    def _charge(self, tenant: Tenant[Q], group: QueueGroup[Q], band: int, now: int) -> None:
        first = tenant
        if tenant.reserve is not None and tenant.reserve_at <= now:
            tenant.reserve_at = tenant.reserve.spend(tenant.reserve_at, now)
            first = self._line.first() or tenant
        if group.ageing is not None:
            group.ageing.note_taken(group.mask, band)
        self._virtual.charge(tenant, first)
        tenant.quota.spend(group, now)

    def finish(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup):
            return
        tenant = group.tenant
        if tenant.in_flight == 0 or not 0 < count <= tenant.running:
            return  # a repeated report
        # (`_leaves_slot` and `_settle_down`, inlined to save two calls per message)
        in_line = tenant.line is self._line
        if tenant.line is None and tenant.concurrency is not None:
            self._virtual.catch_up(tenant)
        tenant.in_flight -= 1
        self._slots.in_flight -= 1
        self._virtual.correct(tenant, service if service > 0 else 0, count)  # noqa: FURB136 - on each message's path
        if not in_line:
            self._place(tenant, now)
            return
        if tenant.start < tenant.noted:
            self._line.on_fall(tenant)
        if tenant.in_flight or not tenant.heavy:
            self._slots.recount(tenant, now)

    def refund(self, queue: Q, now: int, count: int = 1) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup):
            return
        tenant = group.tenant
        if tenant.in_flight == 0 or not 0 < count <= tenant.running:
            return
        tenant.quota.refund(group, count)
        if tenant.reserve is not None:
            tenant.reserve_at -= count * tenant.reserve.interval
        if tenant.parked:  # with the refund, its quota may conform earlier
            tenant.parked = 0
            self._virtual.catch_up(tenant)
        self._leaves_slot(tenant)
        self._virtual.refund(tenant, count)
        if tenant.line is not None:  # re-enter: its turn is as early as without the charge
            tenant.line.enter(tenant)
        self._settle_down(tenant, now)

    def measure_use(self, project: str, now: int) -> QuotaUse:
        tenant = self._tenants.get(project)
        if tenant is None:
            return NOTHING_USED
        quota = tenant.quota
        has = quota.ready > 0 and tenant.open and not tenant.is_full
        return QuotaUse(quota.spent, has, has and (tenant.parked > now or quota.at > now))

    def wait_reason(self, queue: Q, now: int) -> str | None:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask >> queue.band & 1:
            return None
        tenant = group.tenant
        if not tenant.open:
            return "paused"
        if group.mask & ((1 << queue.band) - 1) and group.band() != queue.band:
            return "higher_priority"
        return self._explain(tenant, group, now)

    def _explain(self, tenant: Tenant[Q], group: QueueGroup[Q], now: int) -> str | None:
        if tenant.is_full:
            return "concurrency"
        if tenant.parked > now or not tenant.quota.may_admit(group, now):
            return "quota"
        slots = self._slots
        if slots.is_full:
            return "fairness" if slots.busy > 1 and slots.is_heavy(tenant) else "handlers_busy"
        if self._first(now) is tenant:  # (a reserve needs no headroom)
            return None
        return "fairness" if slots.has_room(tenant, now) else "headroom"

    def _tenant(self, project: str) -> Tenant[Q]:
        tenant = self._tenants.get(project)
        if tenant is None:
            tenant = self._tenants[project] = Tenant()
        return tenant
