"""What the scheduler keeps of one tenant: its quota, its standing between tenants, its rules."""

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
    """A group with its queues by band; bit b of `mask` is set while a queue of band b is ready.

    There is one for each band, but for the time after a topic's `spread` has changed: then the group's backlog lies
    on two partitions. `others` are those that are ready beside the one in `queues`; they take turns.
    """

    __slots__ = ("ageing", "mask", "others", "queues", "tenant")

    def __init__(self, tenant: Tenant[Q]) -> None:
        super().__init__()
        self.tenant = tenant
        self.mask = 0
        self.queues: list[Q] = []  # by band; those of the mask count
        self.others: dict[int, list[Q]] | None = None
        self.ageing = Ageing(tenant.ageing) if tenant.ageing else None

    def fill(self, queue: Q) -> None:
        """The queue has something."""
        band = queue.band
        if len(self.queues) <= band:
            self.queues += [queue] * (band + 1 - len(self.queues))
        if not self.mask >> band & 1:
            self.mask |= 1 << band
            self.queues[band] = queue
        elif self.queues[band] is not queue:
            self.others = self.others or {}
            beside = self.others.setdefault(band, [])
            if queue not in beside:
                beside.append(queue)

    def drain(self, queue: Q) -> None:
        """The queue has nothing any more."""
        band = queue.band
        beside = self.others.get(band) if self.others else None
        if beside and queue in beside:
            beside.remove(queue)
        elif band < len(self.queues) and self.queues[band] is queue:
            if beside:
                self.queues[band] = beside.pop(0)
            else:
                self.mask &= ~(1 << band)
        if self.others and not any(self.others.values()):
            self.others = None

    def turn(self, band: int) -> Q | None:
        """The band's queue, and then it is another one's turn."""
        queue = self.queues[band]
        beside = self.others.get(band) if self.others else None
        if beside and queue is not None:
            beside.append(queue)
            self.queues[band] = beside.pop(0)
        return queue

    def band(self) -> int:
        """Whose message is next; only of a group that is ready."""
        return self.ageing.choose(self.mask) if self.ageing else first(self.mask)


class Tenant(Flow, Generic[Q]):
    """`in_flight` are the slots it holds, `running` its messages in them: more if they come in batches."""

    __slots__ = (
        "active", "ageing", "busy", "concurrency", "groups", "heavy", "in_flight", "leaves_at", "leaving", "light",
        "noted_level", "open", "parked", "quota", "reserve", "reserve_at", "reserve_ticket", "timer",
        "was_held",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[int, QueueGroup[Q]] = {}
        self.quota: TopicQuota[QueueGroup[Q]] = TopicQuota()
        self.open = False  # it has a topic, and isn't paused
        self.concurrency: int | None = None
        self.ageing: float | None = None
        self.reserve: Pace | None = None
        self.reserve_at = NEVER
        self.reserve_ticket = 0  # of its entry among those with a reserve; 0: it has none
        self.in_flight = 0
        self.parked = 0  # the instant at which its quota has more; 0: it isn't parked
        self.heavy = False  # it wants more, and holds its fair share of the slots, or nearly
        self.was_held = False  # it is heavy, and headroom has kept a slot from it since
        self.timer = 0  # the instant of its last timer
        self.noted_level: float | None = None  # of its entry among the levels that counts
        self.busy = False  # it wants a slot or holds one
        self.active = False  # it is busy, or was a moment ago; its weight is among those of the active tenants
        self.leaves_at = 0  # when it is active no longer, unless it is busy
        self.leaving = False  # it stands among those who leave
        self.light: Average | None = None  # what it holds while it is light; made when it first holds anything

    def configure(self, topic: Topic, max_group_qps: float, now: int, whole: float | None = None) -> None:
        """Take on a topic's rules. The weight is the caller's, who keeps their sum. `whole`: see `TopicQuota`."""
        groups = list(self.groups.values())
        self.quota.configure(
            topic.qps, topic.groups, topic.burst, now,
            borrow=topic.borrow, max_group_qps=max_group_qps, known=groups, whole=whole,
        )  # fmt: skip
        self.concurrency = topic.concurrency
        # what slots that end together made late is made good for a second's worth: it is a promise, not a limit
        before, self.reserve = self.reserve, pace(topic.reserve, ceil(topic.reserve)) if topic.reserve else None
        self.reserve_ticket = 0  # what stood there was of the old rate
        if self.reserve is None:
            self.reserve_at = NEVER
        else:
            self.reserve_at = self.reserve.retuned(self.reserve_at, now, before) if before else now
        if topic.ageing != self.ageing:
            self.ageing = topic.ageing
            for group in groups:
                group.ageing = Ageing(topic.ageing) if topic.ageing else None

    def group(self, number: int) -> QueueGroup[Q]:
        """The group, made if it is new."""
        group = self.groups.get(number)
        if group is None:
            group = self.groups[number] = QueueGroup(self)
        return group

    @property
    def level(self) -> float:
        """The slots it would hold with one more, for its weight."""
        return (self.in_flight + 1) / self.weight

    @property
    def full(self) -> bool:
        """It has as many messages in flight as its topic allows."""
        return self.concurrency is not None and self.running >= self.concurrency
