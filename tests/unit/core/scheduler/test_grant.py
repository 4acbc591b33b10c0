"""Messages that were charged and did not start are refunded; a grant that is cancelled was never charged."""

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
    """The projects that may go at once, as far as there are slots."""
    found = []
    while len(found) < most and (queue := start_next(scheduler, now)) is not None:
        found.append(queue.project)
    return found


@pytest.mark.parametrize("qps", [10.0, 0.5])
def test_the_quota_has_them_again(qps):
    """Q, W: a message that wasn't handled costs its topic nothing, and nothing else is late for it."""
    scheduler, queues = scheduler_of(a=topic_of(qps, burst=5))
    assert ["a"] * 5 == taken(scheduler, 20 * SECOND)
    assert [] == taken(scheduler, 20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND)
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND), "it isn't parked any more either"
    assert [] == taken(scheduler, 20 * SECOND)


def test_a_batch_is_given_back_whole():
    """E10."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=6))
    assert queues["a"] is start_next(scheduler, 20 * SECOND)
    for _ in range(3):
        scheduler.again(queues["a"], 20 * SECOND).commit(20 * SECOND)
    scheduler.refund(queues["a"], 20 * SECOND, 4)
    assert ["a"] * 6 == taken(scheduler, 20 * SECOND)


def test_no_tenant_pays_for_it():
    """W: with equal weights both get the same, however often what one was given is given back."""
    scheduler, queues = scheduler_of(a=topic_of(FAST), b=topic_of(FAST))
    got = {"a": 0, "b": 0}
    for step in range(2_000):
        now = SECOND + step * MS
        queue = start_next(scheduler, now)
        if queue.project == "a" and step % 3:
            scheduler.refund(queue, now)
            continue
        got[queue.project] += 1
        scheduler.done(queue, now + MS, MS)
    assert got["a"] == pytest.approx(got["b"], rel=0.05)
    assert queues["a"].slot.tenant.mean == pytest.approx(queues["b"].slot.tenant.mean)


def test_its_turn_is_as_early_as_before():
    """W: not once for the message that didn't go and again for the next one, so close that a lower weight seems to
    have been forgotten.
    """
    scheduler, queues = scheduler_of(30, a=topic_of(FAST, weight=1, burst=99), b=topic_of(FAST, weight=7.5, burst=99))
    now = 20 * SECOND
    for _ in range(10):  # so that it is known how long they take
        queue = start_next(scheduler, now)
        scheduler.done(queue, now, MS)
    while start_next(scheduler, now) is not queues["a"]:
        pass
    assert ["b"] * 3 == taken(scheduler, now, 3)
    scheduler.refund(queues["a"], now)
    assert ["a", "b", "b", "b"] == taken(scheduler, now, 4)


def test_what_never_ran_is_no_matter():
    """A second word on the same message, or one on a queue that was never heard of."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=2))
    scheduler.refund(Queue("nobody"), SECOND)
    taken(scheduler, 20 * SECOND)
    for _ in range(5):
        scheduler.refund(queues["a"], 20 * SECOND)
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND)


@pytest.mark.parametrize(("qps", "groups"), [(1.0, 64), (8.0, 8), (100.0, 50)])
@pytest.mark.parametrize("borrow", [True, False])
def test_so_have_its_groups(qps, groups, borrow):
    """Q, W: no group waits for what it didn't get."""
    made = FairScheduler(64, FAST)
    made.configure("a", topic_of(qps, groups, burst=1, borrow=borrow), 0)
    queues = [Queue("a", group) for group in range(groups)]
    for queue in queues:
        made.ready(queue, 0)
    now, had = 100 * SECOND, []
    for _ in range(200):
        if (queue := start_next(made, now)) is not None:
            had.append(queue)
        now = min(made.wake_at() or now + SECOND, now + SECOND)
        if len(had) == 2 * groups or len(had) == 60:
            break
    for queue in reversed(had):
        made.refund(queue, now)
    assert start_next(made, now) is not None


def test_a_reserve_too():
    """E3: the reserved tenant still has the next decisions."""
    made, queues = scheduler_of(64, a=topic_of(FAST, burst=1_000, reserve=100.0), b=topic_of(FAST, burst=1_000))
    now = 20 * SECOND
    for _ in range(300):
        made.refund(start_next(made, now), now)
    found = []
    for _ in range(50):
        queue = start_next(made, now)
        found.append(queue.project)
        made.done(queue, now, 0)
    assert found.count("a") >= 50
    assert queues["a"].slot.tenant.in_flight == 0


def test_nor_is_anything_learnt_of_it():
    """X9: a tenant of which nothing is known is charged a guess that what never ran doesn't move."""
    made, queues = scheduler_of(64, a=topic_of(FAST, burst=1_000))
    before = made._virtual._mean
    for _ in range(40):
        start_next(made, 20 * SECOND)
        made.refund(queues["a"], 20 * SECOND)
    assert before == made._virtual._mean


def test_a_cancelled_grant_costs_nothing():
    """E10: a message that was gone when it was taken."""
    scheduler, queues = scheduler_of(a=topic_of(10.0, burst=2))
    for _ in range(9):
        scheduler.next(20 * SECOND).cancel()
        scheduler.again(queues["a"], 20 * SECOND).cancel()
    assert ["a"] * 2 == taken(scheduler, 20 * SECOND)


@pytest.mark.parametrize("end", ["cancel", "commit"])
def test_a_grant_ends_once(end):
    scheduler, _ = scheduler_of(a=topic_of(10.0, burst=9))
    grant = scheduler.next(SECOND)
    grant.cancel() if end == "cancel" else grant.commit(SECOND)
    with pytest.raises(RuntimeError, match="has ended"):
        grant.commit(SECOND)
