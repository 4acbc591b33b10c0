"""Where tenants stand: nobody is forgotten, nothing piles up, and the counts agree with the tenants."""

import heapq

import pytest

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from tests.support.scheduler.parts import MS, SECOND, Queue, topic_of

FAST = 1_000_000.0


class Node:
    """Slots that take whatever the scheduler gives; each handler takes `service(queue)` ns."""

    def __init__(self, slots, service=lambda _: MS, **topics):
        self.scheduler, self.slots, self.service = FairScheduler(slots, FAST), slots, service
        self.now, self.running, self.got, self.begun = SECOND, [], dict.fromkeys(topics, 0), 0
        self.queues = {name: Queue(name) for name in topics}
        for name, topic in topics.items():
            self.scheduler.configure(name, topic, self.now)

    def ready(self, *names):
        for name in names:
            self.scheduler.ready(self.queues[name], self.now)

    def run(self, duration):
        end = self.now + duration
        while True:
            while len(self.running) < self.slots and (queue := start_next(self.scheduler, self.now)) is not None:
                self.begun += 1
                self.got[queue.project] += 1
                heapq.heappush(self.running, (self.now + self.service(queue), self.begun, queue, self.now))
            nexts = [self.running[0][0]] if self.running else []
            if len(self.running) < self.slots and (wake := self.scheduler.wake_at()) is not None:
                nexts.append(wake)
            if not nexts or min(nexts) >= end:
                self.now = end
                return
            self.now = max(self.now, min(nexts))
            while self.running and self.running[0][0] <= self.now:
                _, _, ended, since = heapq.heappop(self.running)
                self.scheduler.done(ended, self.now, self.now - since)

    def check_counts(self):
        slots, tenants = self.scheduler._slots, self.scheduler._tenants.values()
        assert slots.in_flight == sum(tenant.in_flight for tenant in tenants) == len(self.running)
        assert slots.busy == sum(tenant.busy for tenant in tenants)
        assert slots.active == sum(tenant.active for tenant in tenants)
        assert slots._light.count == sum(tenant.light.count for tenant in tenants if tenant.light)
        assert slots._heavy_weights == pytest.approx(sum(tenant.weight for tenant in tenants if tenant.heavy))


def test_the_same_group_on_two_partitions_has_both_queues_served():
    """E5, L: after `spread` has changed a group's backlog lies in two queues of the same name."""
    scheduler, old, new = FairScheduler(8, FAST), Queue("a"), Queue("a")
    scheduler.configure("a", topic_of(FAST), 0)
    scheduler.ready(old, 0)
    scheduler.ready(new, 0)
    named = [start_next(scheduler, n * MS) for n in range(4)]
    assert 2 == named.count(old) == named.count(new)
    scheduler.empty(new, 5 * MS)
    assert old is start_next(scheduler, 6 * MS)
    scheduler.empty(old, 7 * MS)
    assert None is start_next(scheduler, 8 * MS)


def test_tenants_that_come_and_go_leave_nothing_behind():
    """W: counts of tenants that left kept slots free for ever."""
    names = [f"t{n}" for n in range(40)]
    node = Node(50, **{name: topic_of(FAST) for name in names}, hot=topic_of(FAST))
    for turn in range(20):
        for name in names[turn % 3 :: 3]:
            node.ready(name)
        node.run(5 * MS)
        for name in names[turn % 3 :: 3]:
            node.scheduler.empty(node.queues[name], node.now)
        node.run(20 * MS)
        node.check_counts()
    node.run(10 * SECOND)
    node.ready("hot")
    node.run(SECOND)
    assert 50 == len(node.running)
    node.check_counts()


def test_lines_hold_no_more_than_there_are_tenants():
    """M: reserves, caps and quotas that end turns early must not pile entries up."""
    topics = {f"t{n}": topic_of(FAST, reserve=FAST, concurrency=1, weight=1.0 + n) for n in range(10)}
    topics |= {f"q{n}": topic_of(150.0) for n in range(10)}
    node = Node(4, **topics)
    node.ready(*topics)
    node.run(5 * SECOND)
    scheduler = node.scheduler
    heaps = [scheduler._line.entries, scheduler._held.entries, scheduler._reserved.entries, scheduler._timers.entries]
    assert all(len(heap) <= 3 * len(topics) for heap in heaps), [len(heap) for heap in heaps]


def test_a_raised_reserve_acts_at_once():
    """X4."""
    node = Node(1, a=topic_of(FAST, reserve=0.01, weight=0.001), b=topic_of(FAST))
    node.ready("a", "b")
    node.run(SECOND)
    node.scheduler.configure("a", topic_of(FAST, reserve=500.0, weight=0.001), node.now)
    before = node.got["a"]
    node.run(2 * SECOND)
    assert 1_000 == pytest.approx(node.got["a"] - before, rel=0.05)


def test_a_reserve_used_alone_is_no_debt():
    node = Node(4, service=lambda _: 100 * MS, a=topic_of(FAST, reserve=1_000.0), b=topic_of(FAST))
    node.ready("a")
    node.run(600 * SECOND)
    node.scheduler.configure("a", topic_of(FAST), node.now)
    node.ready("b")
    before = dict(node.got)
    node.run(60 * SECOND)
    assert 1_200 == pytest.approx(node.got["a"] - before["a"], rel=0.05)


def test_handlers_that_turn_quick_are_served_as_quick_ones_at_once():
    """A refund of a large charge moves the tenant forward in its line, too."""
    quick = []
    names = ["a", "b0", "b1", "b2"]
    node = Node(8, service=lambda queue: 60 * SECOND if queue.project == "a" and not quick else 50 * MS,
                **{name: topic_of(FAST) for name in names})  # fmt: skip
    node.ready(*names)
    node.run(600 * SECOND)
    quick.append(True)
    node.run(130 * SECOND)
    before = node.got["a"]
    node.run(SECOND)
    assert node.got["a"] - before > 20
