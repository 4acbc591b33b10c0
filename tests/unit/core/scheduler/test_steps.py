"""The cost of a decision, counted in executed lines of Python: idle queues are never scanned (E16)."""

import sys
from pathlib import Path

import pytest

from evenlane import priority, quota
from evenlane.engine.core import scheduler
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from tests.support.scheduler.parts import MAX_GROUP_QPS, MS, Queue, topic_of

pytestmark = pytest.mark.source  # compiled code executes no lines of Python

CORE = tuple(str(Path(package.__file__).parent) for package in (scheduler, priority, quota))
DECISIONS = 300


class Node:
    """A node with `known` queues, three per tenant, each of which has been busy before. `busy` tenants have one ready
    queue, and `parked` further ones wait for their quota.
    """

    def __init__(self, known, busy, idle_qps=150.0, parked=0, turns=300):
        self.scheduler, self.now = FairScheduler(50, MAX_GROUP_QPS), 10**15
        self.queues = [Queue(f"t{n // 3}", 0, n % 3) for n in range(known)]
        for n in range(known // 3):
            self.scheduler.configure(f"t{n}", topic_of(100_000 if n < busy else idle_qps, weight=1.0 + n % 3), self.now)
        for queue in self.queues:
            self.scheduler.ready(queue, self.now)
            self.scheduler.empty(queue, self.now)
        self.now += 60_000 * MS  # some rules count tenants that were busy a moment ago
        start_next(self.scheduler, self.now)
        for n in range(busy + parked):
            self.scheduler.ready(self.queues[3 * n], self.now)
        for _ in range(turns):  # each has its turn: handler times are measured, and quotas used up
            self.decide()

    def decide(self):
        self.now += MS
        queue = start_next(self.scheduler, self.now)
        if queue is not None:
            self.scheduler.finish(queue, self.now + 100, 100)
        return queue

    def arrive(self):
        """A message comes and goes."""
        self.scheduler.ready(self.queues[1], self.now)
        self.scheduler.empty(self.queues[1], self.now)

    def wait(self):
        self.scheduler.wake_at()
        self.scheduler.wait_reason(self.queues[0], self.now)


def lines(call, times=DECISIONS):
    """The mean number of lines that `call` executes in the core."""
    count = 0

    def local(frame, event, _):
        nonlocal count
        count += event == "line"
        return local

    def entered(frame, event, _):
        return local if frame.f_code.co_filename.startswith(CORE) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        for _ in range(times):
            call()
    finally:
        sys.settrace(before)
    return count / times


@pytest.fixture(scope="module")
def small():
    return Node(30, busy=10)


@pytest.fixture(scope="module")
def large():
    return Node(60_000, busy=10)


@pytest.mark.parametrize("call", ["decide", "arrive", "wait"])
def test_idle_queues_cost_nothing(small, large, call):
    """E16: a call costs the same with 10 busy tenants among 60,000 queues and among 30."""
    assert lines(getattr(small, call)) == pytest.approx(lines(getattr(large, call)), rel=0.03)


def test_cost_grows_with_the_logarithm_of_busy_tenants():
    """E16: the heap's operations."""
    few, many = (lines(Node(3 * n, busy=n, turns=9_000).decide, 3_000) for n in (30, 3_000))
    assert 10 < few < 150
    assert many <= 1.5 * few


def test_tenants_that_wait_for_quota_cost_nothing():
    """E16."""
    few, many = (Node(15_030, 10, idle_qps=0.01, parked=parked, turns=8_000) for parked in (0, 5_000))
    assert lines(many.decide) <= 1.03 * lines(few.decide)


def test_cost_grows_with_the_logarithm_of_a_tenants_groups():
    """E16."""

    def decisions(groups):
        scheduler, now = FairScheduler(50, MAX_GROUP_QPS), 10**15
        scheduler.configure("a", topic_of(120_000, groups=800), now)
        for group in range(groups):
            scheduler.ready(Queue("a", group), now)

        def decide():
            nonlocal now
            now += 10 * MS
            scheduler.finish(start_next(scheduler, now), now, 100)

        return lines(decide, 2_000)

    assert decisions(800) <= 1.5 * decisions(1)
