"""The part of a topic's quota that a node could use (W)."""

import pytest

from evenlane.engine.core.scheduler.interface import QuotaUse
from evenlane.engine.node.services.quota_demand import QueueDemand, QuotaDemand

SECOND = 1_000_000_000


def wants(*looks, qps=100.0, own=0.5, waiting=(10, 150.0)):
    """The part wanted at the last of `looks`, which are a second apart: (messages charged so far, whether a message
    waits, part that the node may use).
    """
    demand, want = QuotaDemand(), None
    for second, (spent, waits, part) in enumerate(looks):
        seen = QueueDemand(QuotaUse(spent, has=waits, waits=waits), qps, own, part)
        want = demand.want("acme", seen, second * SECOND, lambda: waiting)
    return want


def wants_ready(qps, *, has=True):
    """The part wanted after a second without a start, for a topic that waits for slots. The node's own part is a
    quarter.
    """
    demand = QuotaDemand()
    seen = QueueDemand(QuotaUse(0, has=has, waits=False), qps, 0.25, 0.25)
    demand.want("acme", seen, 0, lambda: (10, 150.0))
    return demand.want("acme", seen, SECOND, lambda: (10, 150.0))


def using(spent):
    """The use of a topic without waiting messages."""
    return QuotaUse(spent, has=False, waits=False)


def test_first_look_wants_the_own_part():
    assert wants((100, False, 0.5)) == 0.5


def test_topic_that_waits_for_quota_wants_its_backlog_within_a_second():
    assert wants((0, True, 0.5), (50, True, 0.5)) == 0.6
    assert wants((0, True, 0.5), (50, True, 0.5), waiting=(1_000, 75.0)) == 0.75, "the most that its groups may have"
    assert wants((0, True, 0.5), waiting=(20, 150.0)) == 0.2, "only its backlog is known"


def test_satisfied_topic_wants_slightly_more_than_it_uses():
    assert wants((0, False, 0.5), (16, False, 0.5)) == 0.2


def test_topic_that_waits_for_slots_wants_no_more_quota():
    """W: though its bucket isn't due at the moment. Unused rate would be taken from others."""
    assert wants((0, True, 0.5), (36, True, 0.5), waiting=(1_000, 150.0)) == pytest.approx(0.42)


def test_use_counts_by_the_part_of_the_last_second():
    assert wants((0, True, 0.3), (30, True, 0.8)) == 0.4


@pytest.mark.parametrize("qps", [0.01, 1.0])
def test_slow_topic_wants_all_without_a_start(qps):
    """Its rate is below one message per second."""
    assert wants((0, True, 0.5), (0, True, 0.5), qps=qps, waiting=(3, 150.0)) == 1.0


@pytest.mark.parametrize("qps", [0.5, 3.0])
def test_slow_topic_with_a_message_keeps_its_own_part(qps):
    """W, X4: at such rates a second without a start is usual. A node that lent all of its part would start nothing in
    the next seconds, even if the quota were raised.
    """
    assert wants_ready(qps) == 0.25


def test_topic_without_messages_wants_nothing():
    assert wants_ready(3.0, has=False) == 0.0


def test_fast_topic_keeps_one_message_per_second():
    assert wants_ready(100.0) == 0.01


def test_changed_quota_restarts_the_measurement():
    """X4."""
    demand = QuotaDemand()
    for second, (spent, qps) in enumerate(((0, 1.0), (1, 1.0), (2, 500.0))):
        want = demand.want("acme", QueueDemand(using(spent), qps, 0.4, 0.4), second * SECOND, lambda: (0, 0.0))
    assert want == 0.4


def test_demand_is_unchanged_between_close_looks():
    demand = QuotaDemand()
    for at, spent in ((0, 0), (SECOND, 16), (SECOND + 1, 90)):
        want = demand.want("acme", QueueDemand(using(spent), 100.0, 0.5, 0.5), at, lambda: (0, 0.0))
    assert want == 0.2


def test_forgotten_project_wants_its_own_part():
    """M."""
    demand = QuotaDemand()
    for second in (0, 1):
        demand.want("acme", QueueDemand(using(9 * second), 100.0, 0.5, 0.5), second * SECOND, lambda: (0, 0.0))
    demand.discard("acme")
    assert demand.want("acme", QueueDemand(using(9), 100.0, 0.5, 0.5), 2 * SECOND, lambda: (0, 0.0)) == 0.5
