"""The scheduler: quota, strict priority and fairness between tenants, put together from `quota` and `priority`.

A tenant is in one place at a time:

- in no line: nothing of it is ready, or it is paused, or has as many in flight as its topic allows
- parked: its quota has nothing at the moment; it stands in the heap of timers
- in `_line`, by start tag
- in `_held`, by start tag too, and by level: it has its fair share of the slots, and the others are for light tenants

`next` wakes whose time has come, then takes the first of both lines. A decision costs O(log active tenants + log ready
groups of one tenant); idle queues cost nothing. docs/scheduler.md derives the bounds.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeAlias

from engine.scheduler.interface import Q
from engine.scheduler.tenant import QueueGroup, Tenant
from priority.fair import Line, VirtualTime
from priority.headroom import NOBODY, Average, opens_in, room
from quota.gcra import NEVER

if TYPE_CHECKING:
    from quota.groups import Spent
    from quota.topic import Topic

_MAX_GROUP_QPS = 150.0
_A_BIT = 1e-6  # makes of "less" what is "no more"
_SOON = 1_000_000  # ns; an instant that moves with each call is asked for no more often than this

# What was charged last, for `give_back`: the tenant, its quota's part, its cost, the group's mask before and the
# band taken, the tenant's `reserve_at` before, and whether it was a slot as well.
_Charge: TypeAlias = "tuple[Tenant[Q], Spent[QueueGroup[Q]], float, int, int, int, bool]"


class FairScheduler(Generic[Q]):
    """`concurrency` is the node's number of slots, `max_group_qps` the most that one group may have by borrowing.

    For controls: without `fair` tenants come in turn, whatever their weight and time; without `headroom` nothing
    is left free for light tenants.
    """

    def __init__(
        self, concurrency: int, max_group_qps: float = _MAX_GROUP_QPS, *, fair: bool = True, headroom: bool = True
    ) -> None:
        self._slots, self._max_group_qps, self._headroom = concurrency, max_group_qps, headroom
        self._tenants: dict[str, Tenant[Q]] = {}
        self._virtual = VirtualTime(fair=fair)
        self._line: Line[Tenant[Q]] = Line()
        self._held: Line[Tenant[Q]] = Line()
        self._levels: list[tuple[float, int, Tenant[Q]]] = []
        self._timers: list[tuple[int, int, Tenant[Q]]] = []
        self._reserved: list[tuple[int, int, Tenant[Q]]] = []
        self._count = 0  # breaks ties in these
        self._weights = 0.0  # of the active tenants: something ready and not parked, or something in flight
        self._active = 0
        self._heavy_weights = 0.0
        self._heavy = 0
        self._in_flight = 0
        self._light = Average(0)  # what all light tenants hold
        self._refused: Tenant[Q] | None = None  # waits for headroom since the last `next`
        self._last: _Charge[Q] | None = None
        self._now = 0

    # ---- rules and arrivals

    def configure(self, project: str, topic: Topic | None, now: int) -> None:
        tenant = self._tenant(project)
        tenant.open = topic is not None and topic.state != "paused"
        if topic is not None:
            tenant.configure(topic, self._max_group_qps, now)
            if tenant.weighs:
                self._weights += topic.weight - tenant.weight
            if tenant.heavy:
                self._heavy_weights += topic.weight - tenant.weight
            tenant.weight = topic.weight
        self._last = None
        tenant.parked = 0
        tenant.line = None
        self._virtual.catch_up(tenant)
        self._place(tenant, now)

    def ready(self, queue: Q, now: int) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup):
            group = queue.slot = self._tenant(queue.project).group(queue.group)
            group.keep(queue)
        before = group.mask
        group.mask = before | 1 << queue.band
        if before:
            return
        tenant = group.tenant
        quota = tenant.quota
        quota.enter(group, now)
        if quota.ready == 1:
            self._virtual.catch_up(tenant)
            self._place(tenant, now)
        elif tenant.parked and quota.at <= now:
            tenant.parked = 0  # the new group may conform earlier than those that were asked
            self._place(tenant, now)

    def empty(self, queue: Q, now: int) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask:
            return
        group.mask &= ~(1 << queue.band)
        if not group.mask:
            tenant = group.tenant
            tenant.quota.leave(group)
            if not tenant.quota.ready:
                tenant.parked = 0
                self._place(tenant, now)

    # ---- decisions

    def next(self, now: int) -> Q | None:
        self._now = now
        timers = self._timers
        if timers and timers[0][0] <= now:
            self._wake(now)
        while (tenant := self._first(now)) is not None:
            quota = tenant.quota
            group = quota.choose(now)
            if group is None:
                self._park(tenant, quota.wakes_at, now)
                continue
            mask = group.mask
            band = (mask & -mask).bit_length() - 1 if group.ageing is None else group.ageing.choose(mask)
            tenant.in_flight += 1
            self._in_flight += 1
            self._charge(tenant, group, band, now, True)
            if quota.at > now:
                self._park(tenant, quota.at, now)
            elif tenant.concurrency is not None:
                self._place(tenant, now)
            elif self._active > 1:
                self._count_light(tenant, now)
            return group.queues[band]
        return None

    def again(self, queue: Q, now: int) -> bool:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask or group.band() != queue.band:
            return False
        tenant = group.tenant
        if not tenant.open or tenant.full or not tenant.quota.admits(group, now):
            return False
        self._charge(tenant, group, queue.band, now, False)
        self._place(tenant, now)
        return True

    def give_back(self, queue: Q, now: int) -> None:
        last, self._last = self._last, None
        if last is None:
            return
        tenant, spent, cost, mask, band, reserve_at, slot = last
        group = spent[0]
        if group is not queue.slot or band != queue.band:
            return
        tenant.quota.give_back(spent)
        self._virtual.give_back(tenant, cost)
        tenant.reserve_at = reserve_at
        if group.ageing:
            group.ageing.given_back(mask, band)
        if slot:
            tenant.in_flight -= 1
            self._in_flight -= 1
        tenant.parked = 0
        self._place(tenant, now)

    def done(self, queue: Q, now: int, service: int, count: int = 1) -> None:
        group = queue.slot
        if not isinstance(group, QueueGroup):
            return
        tenant = group.tenant
        if tenant.in_flight == 0 or tenant.running < count:
            return  # it was reported before
        self._last = None
        if tenant.concurrency is not None and tenant.line is None:
            self._virtual.catch_up(tenant)
        tenant.in_flight -= 1
        self._in_flight -= 1
        self._virtual.correct(tenant, service if service > 0 else 0, count)  # noqa: FURB136 - on each message's path
        if tenant.line is self._line:
            if self._active > 1:
                self._count_light(tenant, now)
        else:
            self._place(tenant, now)

    def wake_at(self) -> int | None:
        wake = NEVER
        timers = self._timers
        while timers and timers[0][2].parked != timers[0][0]:
            until, _, tenant = heappop(timers)
            if tenant.timer == until:
                tenant.timer = 0
        if timers:
            wake = timers[0][0]
        refused = self._refused
        if refused is not None and refused.line is self._held:
            wake = min(wake, self._headroom_at(refused))
            if self._reserved:
                wake = min(wake, max(self._reserved[0][0], self._now + _SOON))
        return wake if wake < NEVER else None

    def why(self, queue: Q, now: int) -> str | None:
        group = queue.slot
        if not isinstance(group, QueueGroup) or not group.mask >> queue.band & 1:
            return None
        tenant = group.tenant
        if not tenant.open:
            return "paused"
        if group.mask & ((1 << queue.band) - 1):
            return "higher_priority"
        return self._why(tenant, now)

    def _why(self, tenant: Tenant[Q], now: int) -> str:
        if tenant.full:
            return "concurrency"
        if tenant.parked > now or tenant.quota.choose(now) is None:
            return "quota"
        if self._in_flight >= self._slots:
            return "fairness" if self._active > 1 and self._is_heavy(tenant) else "handlers_busy"
        if not self._has_room(tenant, now):
            return "headroom"
        return "handlers_busy" if self._first(now) is tenant else "fairness"

    # ---- one decision

    def _first(self, now: int) -> Tenant[Q] | None:
        """The tenant whose turn it is: inside its reserve, else by start tag, as far as headroom allows."""
        self._refused = None
        if self._reserved and (reserved := self._inside_reserve(now)) is not None:
            return reserved
        held = self._held.first() if self._held.entries else None
        if held is not None and not self._has_room(held, now):
            self._refused = held
            held = self._below_level(now)
        while True:
            first = self._line.first()
            if held is not None and (first is None or held.start < first.start):
                return held
            if first is None or not first.in_flight or self._has_room(first, now):
                return first
            self._hold(first)
            if self._refused is None or first.start < self._refused.start:
                self._refused = first

    def _hold(self, tenant: Tenant[Q]) -> None:
        self._held.enter(tenant)
        self._note_level(tenant)

    def _note_level(self, tenant: Tenant[Q]) -> None:
        """One entry of each tenant counts, the lowest; it is brought up to date when it comes to the top."""
        level = tenant.level
        if tenant.noted_level is None or level < tenant.noted_level:
            tenant.noted_level = level
            self._count += 1
            heappush(self._levels, (level, self._count, tenant))

    def _below_level(self, now: int) -> Tenant[Q] | None:
        """Of the held tenants the one with the least for its weight, if that is less than its part."""
        levels = self._levels
        while levels:
            level, _, tenant = levels[0]
            if tenant.noted_level != level:
                heappop(levels)
                continue
            if tenant.line is self._held and tenant.level == level:
                return tenant if self._has_room(tenant, now) else None
            heappop(levels)
            tenant.noted_level = None
            if tenant.line is self._held:
                self._note_level(tenant)
        return None

    def _charge(self, tenant: Tenant[Q], group: QueueGroup[Q], band: int, now: int, slot: bool) -> None:
        reserve_at = tenant.reserve_at
        in_turn = reserve_at > now
        if not in_turn and tenant.reserve is not None:
            tenant.reserve_at = tenant.reserve.spent(reserve_at, now)
        mask = group.mask
        if group.ageing is not None:
            group.ageing.taken(mask, band)
        cost = self._virtual.charge(tenant, in_turn)
        self._last = (tenant, tenant.quota.spend(group, now), cost, mask, band, reserve_at, slot)

    # ---- places

    def _place(self, tenant: Tenant[Q], now: int) -> None:
        """Put the tenant where it belongs after whatever changed."""
        wants = tenant.open and tenant.quota.ready > 0 and not tenant.parked
        weighs = wants or tenant.in_flight > 0
        if weighs != tenant.weighs:
            self._weigh(tenant, weighs)
        if not wants or tenant.full:
            tenant.line = None
        elif tenant.line is None or (tenant.line is self._held and not self._is_heavy(tenant)):
            self._line.enter(tenant)
            if tenant.reserve is not None and not tenant.reserved:
                self._list_reserve(tenant)
        elif tenant.line is self._held:
            self._note_level(tenant)
        self._count_light(tenant, now)

    def _park(self, tenant: Tenant[Q], until: int, now: int) -> None:
        tenant.parked = until
        if until < NEVER and until != tenant.timer:
            tenant.timer = until
            self._count += 1
            heappush(self._timers, (until, self._count, tenant))
        self._place(tenant, now)

    def _wake(self, now: int) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            until, _, tenant = heappop(timers)
            if tenant.timer == until:
                tenant.timer = 0
            if tenant.parked == until:
                tenant.parked = 0
                self._virtual.catch_up(tenant)
                self._place(tenant, now)

    def _list_reserve(self, tenant: Tenant[Q]) -> None:
        tenant.reserved = True
        self._count += 1
        heappush(self._reserved, (tenant.reserve_at, self._count, tenant))

    def _inside_reserve(self, now: int) -> Tenant[Q] | None:
        reserved = self._reserved
        while reserved and reserved[0][0] <= now:
            tenant = reserved[0][2]
            if tenant.line is not None and tenant.reserve_at <= now:
                return tenant
            heappop(reserved)
            tenant.reserved = False
            if tenant.line is not None and tenant.reserve is not None:
                self._list_reserve(tenant)
        return None

    # ---- slots

    def _is_heavy(self, tenant: Tenant[Q]) -> bool:
        """Whether a tenant that wants more holds its fair share of the slots, max(1, floor(W w / sum w))."""
        held = tenant.in_flight
        return held > 0 and (held + 1) * self._weights > self._slots * tenant.weight

    def _weigh(self, tenant: Tenant[Q], weighs: bool) -> None:
        tenant.weighs = weighs
        self._active += 1 if weighs else -1
        self._weights += tenant.weight if weighs else -tenant.weight
        if not self._active:
            self._weights = 0.0  # so that rounding can't add up

    def _count_light(self, tenant: Tenant[Q], now: int) -> None:
        """What a heavy tenant holds doesn't count among the light ones. One that has just lost a slot and will take
        it again is still heavy. What a lone tenant holds is asked by nobody: its count may be old.
        """
        if not self._headroom or self._active < 2:
            return
        count = tenant.in_flight
        heavy = tenant.heavy
        if tenant.line is None:
            heavy = False
        elif (count + 1) * self._weights > self._slots * tenant.weight:
            heavy = count > 0
        elif 2 * count * self._weights < self._slots * tenant.weight:
            heavy = False
        if heavy is not tenant.heavy:
            self._weigh_heavy(tenant, heavy)
        if heavy:
            count = 0
        own = tenant.light
        if own is None:
            if not count:
                return
            own = tenant.light = Average(now)
        if by := count - own.count:
            own.move(by, now)
            self._light.move(by, now)

    def _weigh_heavy(self, tenant: Tenant[Q], heavy: bool) -> None:
        tenant.heavy = heavy
        self._heavy += 1 if heavy else -1
        self._heavy_weights += tenant.weight if heavy else -tenant.weight
        if not self._heavy:
            self._heavy_weights = 0.0

    def _has_room(self, tenant: Tenant[Q], now: int) -> bool:
        """Whether it may take a further slot: it is below its fair share, or below its part of what the heavy
        tenants may have, or enough stay free for the light ones.
        """
        if not self._headroom or not self._is_heavy(tenant):
            return True
        others = self._light.read(now)
        for_heavy = self._slots - room(self._others(tenant, now)) if others > NOBODY else self._slots
        if self._in_flight - self._light.count < for_heavy:
            return True
        weights = self._heavy_weights if tenant.heavy else self._heavy_weights + tenant.weight
        return tenant.level * weights <= for_heavy

    def _others(self, tenant: Tenant[Q], now: int) -> float:
        """What light tenants but this one hold on average."""
        others = self._light.read(now)
        if tenant.light is not None:
            others -= tenant.light.read(now)
        return others if others > 0.0 else 0.0  # noqa: FURB136 - on each message's path

    def _headroom_at(self, tenant: Tenant[Q]) -> int:
        """When what the light tenants hold will have been low for long enough, if nothing else happens."""
        own = tenant.light.count if tenant.light is not None else 0
        others = self._others(tenant, self._now)
        held: float = self._in_flight - self._light.count
        if self._levels:
            held = min(held, self._levels[0][0] * self._heavy_weights - _A_BIT)
        wait = opens_in(others, self._light.count - own, held, self._slots)
        return NEVER if wait is None else self._now + max(wait, _SOON)

    def _tenant(self, project: str) -> Tenant[Q]:
        tenant = self._tenants.get(project)
        if tenant is None:
            tenant = self._tenants[project] = Tenant()
        return tenant
