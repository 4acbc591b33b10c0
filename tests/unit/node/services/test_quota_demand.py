"""What a node could use of a topic (W)."""

import pytest

from evenlane.engine.core.scheduler.interface import Used
from evenlane.engine.node.services.quota_demand import Demand, QueueDemand

SECOND = 1_000_000_000


def wants(*looks, qps=100.0, own=0.5, waiting=(10, 150.0)):
    """Looks a second apart: (charged so far, something waits, part that it may use); what is wanted at the last."""
    demand, want = Demand(), None
    for second, (spent, waits, part) in enumerate(looks):
        seen = QueueDemand(Used(spent, has=waits, waits=waits), qps, own, part)
        want = demand.want("acme", seen, second * SECOND, lambda: waiting)
    return want


def wants_ready(qps, *, has=True):
    """After a second without a start, of a topic that only waits for slots; a quarter is its own."""
    demand = Demand()
    seen = QueueDemand(Used(0, has=has, waits=False), qps, 0.25, 0.25)
    demand.want("acme", seen, 0, lambda: (10, 150.0))
    return demand.want("acme", seen, SECOND, lambda: (10, 150.0))


def using(spent):
    """What is seen of a topic that nothing waits of."""
    return Used(spent, has=False, waits=False)


def test_at_the_first_look_it_wants_its_own():
    assert wants((100, False, 0.5)) == 0.5


def test_who_is_held_up_wants_what_waits_within_a_second():
    assert wants((0, True, 0.5), (50, True, 0.5)) == 0.6
    assert wants((0, True, 0.5), (50, True, 0.5), waiting=(1_000, 75.0)) == 0.75, "as much as its groups may have"
    assert wants((0, True, 0.5), waiting=(20, 150.0)) == 0.2, "nothing is known but that it waits"


def test_who_is_not_held_up_wants_what_it_uses_and_a_little_more():
    assert wants((0, False, 0.5), (16, False, 0.5)) == 0.2


def test_a_bucket_that_is_not_due_at_the_moment_holds_nobody_up():
    """W: what holds it up are slots, or its concurrency; to hoard the rate would take it from others."""
    assert wants((0, True, 0.5), (36, True, 0.5), waiting=(1_000, 150.0)) == pytest.approx(0.42)


def test_a_second_in_which_its_part_grew_counts_by_the_part_that_it_had():
    assert wants((0, True, 0.3), (30, True, 0.8)) == 0.4


@pytest.mark.parametrize("qps", [0.01, 1.0])
def test_a_slow_topic_is_held_up_though_nothing_was_handed_out(qps):
    """Rates far below one a second."""
    assert wants((0, True, 0.5), (0, True, 0.5), qps=qps, waiting=(3, 150.0)) == 1.0


@pytest.mark.parametrize("qps", [0.5, 3.0])
def test_who_has_a_message_wants_one_a_second_of_its_own(qps):
    """W, X4: at such rates a second without a start is nothing unusual; who lent all he has would start nothing in the
    next ones, whatever the quota is raised to.
    """
    assert wants_ready(qps) == 0.25


def test_who_has_none_wants_nothing():
    assert wants_ready(3.0, has=False) == 0.0


def test_of_a_fast_topic_it_lends_all_but_one_message_a_second():
    assert wants_ready(100.0) == 0.01


def test_under_another_quota_nothing_is_known():
    """X4: what was used under the old one says nothing of what could be used now."""
    demand = Demand()
    for second, (spent, qps) in enumerate(((0, 1.0), (1, 1.0), (2, 500.0))):
        want = demand.want("acme", QueueDemand(using(spent), qps, 0.4, 0.4), second * SECOND, lambda: (0, 0.0))
    assert want == 0.4


def test_between_looks_that_are_too_close_it_stands():
    demand = Demand()
    for at, spent in ((0, 0), (SECOND, 16), (SECOND + 1, 90)):
        want = demand.want("acme", QueueDemand(using(spent), 100.0, 0.5, 0.5), at, lambda: (0, 0.0))
    assert want == 0.2


def test_those_that_went_are_forgotten():
    """M."""
    demand = Demand()
    for second in (0, 1):
        demand.want("acme", QueueDemand(using(9 * second), 100.0, 0.5, 0.5), second * SECOND, lambda: (0, 0.0))
    demand.forget("acme")
    assert demand.want("acme", QueueDemand(using(9), 100.0, 0.5, 0.5), 2 * SECOND, lambda: (0, 0.0)) == 0.5
