"""Refunds of charged messages that did not start, and cancelled grants, which charge nothing (E10)."""

import pytest

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from tests.support.scheduler.parts import MS, SECOND, Queue, topic_of

FAST = 1_000_000.0


def scheduler_of(slots=8, **topics):
    made, queues = FairScheduler(slots, FAST), {name: Queue(name) for name in topics}
    for name, topic in topics.items():
        made.configure(name, topic, 0)
        made.ready(queues[name], SECOND)
    return made, queues


def taken(scheduler, now, most=100):
    """The projects of the messages that start now, as far as there are slots."""
    found = []
    while len(found) < most and (queue := start_next(scheduler, now)) is not None:
        found.append(queue.project)
    return found


@pytest.mark.parametrize("qps", [10.0, 0.5])
def test_refund_returns_messages_to_the_quota(qps):
    """Q, W: a message that didn't start costs its topic nothing."""
    scheduler, queues = scheduler_of(a=topic_of(qps, burst=5))
    assert ["a"] * 5 == taken(scheduler, 20 * SECOND)
    assert [] == taken(scheduler, 20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND)
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND), "the tenant is still parked"
    assert [] == taken(scheduler, 20 * SECOND)


def test_refund_of_a_batch_returns_all_its_messages():
    """E10."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=6))
    assert queues["a"] is start_next(scheduler, 20 * SECOND)
    for _ in range(3):
        scheduler.grant_again(queues["a"], 20 * SECOND).commit(20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND, 4)
    assert ["a"] * 6 == taken(scheduler, 20 * SECOND)


def test_refunds_do_not_change_the_shares():
    """W: tenants of equal weight get equal numbers, although one of them has two of three messages refunded."""
    scheduler, queues = scheduler_of(a=topic_of(FAST), b=topic_of(FAST))
    served = {"a": 0, "b": 0}
    for step in range(2_000):
        now = SECOND + step * MS
        queue = start_next(scheduler, now)
        if queue.project == "a" and step % 3:
            scheduler.refund(queue, now)
            continue
        served[queue.project] += 1
        scheduler.finish(queue, now + MS, MS)
    assert served["a"] == pytest.approx(served["b"], rel=0.05)
    assert queues["a"].slot.tenant.mean == pytest.approx(queues["b"].slot.tenant.mean)


def test_refunded_tenant_has_its_turn_as_early_as_before():
    """W: the tenant isn't charged both for the refunded message and for the next one."""
    scheduler, queues = scheduler_of(30, a=topic_of(FAST, weight=1, burst=99), b=topic_of(FAST, weight=7.5, burst=99))
    now = 20 * SECOND
    for _ in range(10):  # so that their handler times are known
        queue = start_next(scheduler, now)
        scheduler.finish(queue, now, MS)
    while start_next(scheduler, now) is not queues["a"]:
        pass
    assert ["b"] * 3 == taken(scheduler, now, 3)
    scheduler.refund(queues["a"], now)
    assert ["a", "b", "b", "b"] == taken(scheduler, now, 4)


def test_refund_of_unknown_or_ended_messages_has_no_effect():
    """A repeated refund, and one of an unknown queue."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=2))
    scheduler.refund(Queue("nobody"), SECOND)
    taken(scheduler, 20 * SECOND)
    for _ in range(5):
        scheduler.refund(queues["a"], 20 * SECOND)
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND)


@pytest.mark.parametrize(("qps", "groups"), [(1.0, 64), (8.0, 8), (100.0, 50)])
@pytest.mark.parametrize("borrow", [True, False])
def test_refund_returns_messages_to_their_groups(qps, groups, borrow):
    """Q, W: no group is charged for messages that didn't start."""
    made = FairScheduler(64, FAST)
    made.configure("a", topic_of(qps, groups, burst=1, borrow=borrow), 0)
    queues = [Queue("a", group) for group in range(groups)]
    for queue in queues:
        made.ready(queue, 0)
    now, started = 100 * SECOND, []
    for _ in range(200):
        if (queue := start_next(made, now)) is not None:
            started.append(queue)
        now = min(made.wake_at() or now + SECOND, now + SECOND)
        if len(started) == 2 * groups or len(started) == 60:
            break
    for queue in reversed(started):
        made.refund(queue, now)
    assert start_next(made, now) is not None


def test_refund_returns_messages_to_the_reserve():
    """The tenant with the reserve still comes first."""
    made, queues = scheduler_of(64, a=topic_of(FAST, burst=1_000, reserve=100.0), b=topic_of(FAST, burst=1_000))
    now = 20 * SECOND
    for _ in range(300):
        made.refund(start_next(made, now), now)
    found = []
    for _ in range(50):
        queue = start_next(made, now)
        found.append(queue.project)
        made.finish(queue, now, 0)
    assert found.count("a") >= 50
    assert queues["a"].slot.tenant.in_flight == 0


def test_refunds_do_not_change_the_estimate_for_new_tenants():
    """X9: only handlers that ran change the charge of a tenant without measurements."""
    made, queues = scheduler_of(64, a=topic_of(FAST, burst=1_000))
    charges = set()
    for _ in range(40):
        tenant = start_next(made, 20 * SECOND).slot.tenant
        charges.add(tenant.charged)
        made.refund(queues["a"], 20 * SECOND)
    assert [0.0] != sorted(charges)
    assert 1 == len(charges)


def test_cancelled_grant_costs_nothing():
    """E10: the message was missing when it was taken."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=2))
    for _ in range(9):
        scheduler.next(20 * SECOND).cancel()
        scheduler.grant_again(queues["a"], 20 * SECOND).cancel()
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND)


@pytest.mark.parametrize("end", ["cancel", "commit"])
def test_ended_grant_refuses_a_commit(end):
    scheduler, _ = scheduler_of(a=topic_of(10.0, burst=9))
    grant = scheduler.next(SECOND)
    grant.cancel() if end == "cancel" else grant.commit(SECOND)
    with pytest.raises(RuntimeError, match="has ended"):
        grant.commit(SECOND)
