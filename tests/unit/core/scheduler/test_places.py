"""Tenants in the scheduler's lines and heaps: none is lost, no entries pile up, and the counts agree with them."""

import gc
import heapq

import pytest

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from tests.support.scheduler.parts import MS, SECOND, Queue, topic_of

FAST = 1_000_000.0


class Node:
    """A node that starts each message that the scheduler grants; each handler takes `service(queue)` ns."""

    def __init__(self, slots, service=lambda _: MS, **topics):
        self.scheduler, self.slots, self.service = FairScheduler(slots, FAST), slots, service
        self.now, self.running, self.got, self.begun = SECOND, [], dict.fromkeys(topics, 0), 0
        self.queues = {name: Queue(name) for name in topics}
        for name, topic in topics.items():
            self.topic(name, topic)

    def topic(self, name, topic):
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
                self.scheduler.finish(ended, self.now, self.now - since)

    def check_counts(self):
        """Check the counts against the tenants. No public property shows them, and most errors in them show late."""
        slots, tenants = self.scheduler._slots, self.scheduler._tenants.values()
        assert slots.in_flight == sum(tenant.in_flight for tenant in tenants) == len(self.running)
        assert slots.busy == sum(tenant.busy for tenant in tenants)
        assert slots.active == sum(tenant.active for tenant in tenants)
        assert slots._light.count == sum(tenant.light.count for tenant in tenants if tenant.light)
        assert slots._heavy_weights == pytest.approx(sum(tenant.weight for tenant in tenants if tenant.heavy))

    def served(self, duration):
        """The number of messages that each tenant starts in a time."""
        before = dict(self.got)
        self.run(duration)
        return {name: number - before[name] for name, number in self.got.items() if number > before[name]}


def test_both_queues_of_a_group_on_two_partitions_are_served():
    """E5, L: after a change of `spread`, a group's backlog is in two queues of the same name."""
    scheduler, old, new = FairScheduler(8, FAST), Queue("a"), Queue("a")
    scheduler.configure("a", topic_of(FAST), 0)
    scheduler.ready(old, 0)
    scheduler.ready(new, 0)
    started = [start_next(scheduler, n * MS) for n in range(4)]
    assert 2 == started.count(old) == started.count(new)
    scheduler.empty(new, 5 * MS)
    assert old is start_next(scheduler, 6 * MS)
    scheduler.empty(old, 7 * MS)
    assert None is start_next(scheduler, 8 * MS)


def test_tenants_that_left_are_no_longer_counted():
    """W: with stale counts, slots would stay free for tenants that have left."""
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


def test_heaps_have_a_bounded_number_of_entries_per_tenant():
    """M: turns that reserves, caps and quotas end early must not leave entries behind."""
    topics = {f"t{n}": topic_of(FAST, reserve=FAST, concurrency=1, weight=1.0 + n) for n in range(10)}
    topics |= {f"q{n}": topic_of(150.0) for n in range(10)}
    node = Node(4, **topics)
    node.ready(*topics)
    node.run(5 * SECOND)
    entries = [each for queue in node.queues.values() for each in gc.get_referrers(queue.slot.tenant)]
    assert 0 < sum(isinstance(each, tuple) for each in entries) <= 3 * len(topics)


def test_raised_reserve_takes_effect_at_once():
    """X4."""
    node = Node(1, a=topic_of(FAST, reserve=0.01, weight=0.001), b=topic_of(FAST))
    node.ready("a", "b")
    node.run(SECOND)
    node.scheduler.configure("a", topic_of(FAST, reserve=500.0, weight=0.001), node.now)
    assert 1_000 == pytest.approx(node.served(2 * SECOND)["a"], rel=0.05)


def test_reserve_used_while_alone_leaves_no_debt():
    """W."""
    node = Node(4, service=lambda _: 100 * MS, a=topic_of(FAST, reserve=1_000.0), b=topic_of(FAST))
    node.ready("a")
    node.run(600 * SECOND)
    node.scheduler.configure("a", topic_of(FAST), node.now)
    node.ready("b")
    assert 1_200 == pytest.approx(node.served(60 * SECOND)["a"], rel=0.05)


def test_tenant_whose_handlers_become_quick_gets_its_share_at_once():
    """The correction of a large charge moves the tenant forward in its line."""
    quick = []
    names = ["a", "b0", "b1", "b2"]
    node = Node(8, service=lambda queue: 60 * SECOND if queue.project == "a" and not quick else 50 * MS,
                **{name: topic_of(FAST) for name in names})  # fmt: skip
    node.ready(*names)
    node.run(600 * SECOND)
    quick.append(True)
    node.run(130 * SECOND)
    assert node.served(SECOND)["a"] > 20
