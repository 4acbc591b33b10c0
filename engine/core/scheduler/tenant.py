"""The scheduler's state of one tenant: its quota, its share of the slots, its rules."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Generic

from evenlane.engine.core.scheduler.interface import Q
from evenlane.priority.bands import Ageing, first
from evenlane.priority.fair import Flow
from evenlane.quota.rates.gcra import NEVER, pace
from evenlane.quota.rates.groups import Group, TopicQuota

if TYPE_CHECKING:
    from evenlane.priority.headroom import Average
    from evenlane.quota.rates.gcra import Pace
    from evenlane.quota.topics.topic import Topic


class QueueGroup(Group, Generic[Q]):
    """A group of a topic with its queues by band.

    Invariants:
    - Bit b of `mask` is set exactly while a queue of band b is ready; `queues[b]` is then that queue. Where the bit is
      clear, `queues[b]` has no meaning.
    - Normally a group has one queue per band. After a change of the topic's `spread` its backlog lies on two partitions
      for a while: `others` has further ready queues of a band, which take turns with the one in `queues`.
    """

    __slots__ = ("ageing", "mask", "others", "queues", "tenant")

    def __init__(self, tenant: Tenant[Q]) -> None:
        super().__init__()
        self.tenant = tenant
        self.mask = 0
        self.queues: list[Q] = []  # by band; only bands in `mask` are valid
        self.others: dict[int, list[Q]] | None = None
        self.ageing = Ageing(tenant.ageing) if tenant.ageing else None

    def fill(self, queue: Q) -> None:
        """The queue has become ready."""
        band = queue.band
        if len(self.queues) <= band:
            self.queues += [queue] * (band + 1 - len(self.queues))
        if not self.mask >> band & 1:
            self.mask |= 1 << band
            self.queues[band] = queue
        elif self.queues[band] is not queue:
            self.others = self.others or {}
            same_band = self.others.setdefault(band, [])
            if queue not in same_band:
                same_band.append(queue)

    def drain(self, queue: Q) -> None:
        """The queue has no ready message any more."""
        band = queue.band
        same_band = self.others.get(band) if self.others else None
        if same_band and queue in same_band:
            same_band.remove(queue)
        elif band < len(self.queues) and self.queues[band] is queue:
            if same_band:
                self.queues[band] = same_band.pop(0)
            else:
                self.mask &= ~(1 << band)
        if self.others and not any(self.others.values()):
            self.others = None

    def turn(self, band: int) -> Q | None:
        """Return the band's queue, and let the next queue of the band take its place."""
        queue = self.queues[band]
        same_band = self.others.get(band) if self.others else None
        if same_band and queue is not None:
            same_band.append(queue)
            self.queues[band] = same_band.pop(0)
        return queue

    def band(self) -> int:
        """The band whose message is next. The group must be ready."""
        return self.ageing.choose(self.mask) if self.ageing else first(self.mask)


class Tenant(Flow, Generic[Q]):
    """A tenant as the scheduler sees it.

    Invariants:
    - `in_flight` is the number of slots it holds, `running` the number of messages in them, which is higher with
      batches.
    - `line` is the `Line` that it is in, None if it is in none. While `parked` isn't 0, it is in none.
    - Of its entries in the heaps of timers, levels and reserves, at most one each is valid: the one that matches
      `parked`, `noted_level` or `reserve_ticket`. All others are stale and ignored.
    """

    __slots__ = (
        "active", "ageing", "batch", "busy", "concurrency", "groups", "heavy", "in_flight", "leaves_at", "leaving",
        "light", "noted_level", "open", "parked", "quota", "reserve", "reserve_at", "reserve_ticket", "timer",
        "was_held",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[int, QueueGroup[Q]] = {}
        self.quota: TopicQuota[QueueGroup[Q]] = TopicQuota()
        self.open = False  # has a topic, and isn't paused
        self.batch = 0  # messages whose quota a group saves up, for a handler that waits for full batches
        self.concurrency: int | None = None
        self.ageing: float | None = None
        self.reserve: Pace | None = None
        self.reserve_at = NEVER
        self.reserve_ticket = 0  # of its valid entry in the reserve heap; 0: none
        self.in_flight = 0
        self.parked = 0  # until when its quota is exhausted, ns; 0: it isn't parked
        self.heavy = False  # wants more, and holds its fair share of the slots, or nearly
        self.was_held = False  # heavy, and headroom has held it back since it became so
        self.timer = 0  # instant of its last entry in the timer heap, ns; 0: none
        self.noted_level: float | None = None  # of its valid entry in the level heap; None: none
        self.busy = False  # wants a slot, or holds one
        self.active = False  # busy, or was a moment ago
        self.leaves_at = 0  # when it becomes inactive, unless it is busy then, ns
        self.leaving = False  # has an entry in `Slots.leaving`
        self.light: Average | None = None  # slots held while light; created when it first holds one

    def configure(self, topic: Topic, max_group_qps: float, now: int, whole: float | None = None) -> None:
        """Apply a topic's rules. The caller sets the weight, because it keeps the sum of all weights. `whole`: see
        `TopicQuota`.
        """
        groups = list(self.groups.values())
        self.quota.configure(
            topic.qps, topic.groups, topic.burst, now,
            borrow=topic.borrow, max_group_qps=max_group_qps, known=groups, whole=whole, batch=self.batch,
        )  # fmt: skip
        self.concurrency = topic.concurrency
        # A reserve is a promise, not a limit: up to one second's worth of late messages is made up for.
        before, self.reserve = self.reserve, pace(topic.reserve, ceil(topic.reserve)) if topic.reserve else None
        self.reserve_ticket = 0  # the entry in the heap was computed with the old rate
        if self.reserve is None:
            self.reserve_at = NEVER
        else:
            self.reserve_at = self.reserve.retune(self.reserve_at, now, before) if before else now
        if topic.ageing != self.ageing:
            self.ageing = topic.ageing
            for group in groups:
                group.ageing = Ageing(topic.ageing) if topic.ageing else None

    def group(self, number: int) -> QueueGroup[Q]:
        """The group with this number, created if it is new."""
        group = self.groups.get(number)
        if group is None:
            group = self.groups[number] = QueueGroup(self)
        return group

    @property
    def level(self) -> float:
        """The slots that it would hold with one more, divided by its weight."""
        return (self.in_flight + 1) / self.weight

    @property
    def is_full(self) -> bool:
        """Whether it has as many messages in flight as its topic allows."""
        return self.concurrency is not None and self.running >= self.concurrency
