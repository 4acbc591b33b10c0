"""Arrival processes: their rate, order and seed; and loads made of them."""

from itertools import islice, pairwise

import pytest

from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.quota.topics.topic import TopicError


def test_names_determine_the_random_stream():
    first, again, other = (list(a.poisson(a.stream_of(*of), 5, 0, a.SECOND)) for of in ((1, "x"), (1, "x"), (1, "y")))
    assert first == again
    assert first != other


def test_poisson_keeps_its_rate_and_interval():
    times = list(a.poisson(a.stream_of(1, "p"), 100, a.SECOND, 101 * a.SECOND))
    assert times == sorted(times)
    assert a.SECOND <= times[0] <= times[-1] < 101 * a.SECOND
    assert abs(len(times) - 10_000) < 4 * 100, "four deviations"
    gaps = [late - early for early, late in pairwise(times)]
    assert abs(sum(gap > a.SECOND // 100 for gap in gaps) / len(gaps) - 1 / 2.718) < 0.02, "exponential, not even"


def test_uniform_is_even_and_burst_is_at_once():
    assert [0, a.SECOND // 4, a.SECOND // 2] == list(a.uniform(4, 0, 3 * a.SECOND // 4))
    assert [7, 7, 7] == list(a.burst(3, 7))


def test_zipf_shares_fall_with_rank():
    shares = a.zipf(4)
    assert pytest.approx(1) == sum(shares)
    assert pytest.approx([1, 1 / 2, 1 / 3, 1 / 4]) == [share / shares[0] for share in shares]
    assert pytest.approx(a.even(5)) == a.zipf(5, 0)


def test_receivers_are_chosen_by_share():
    chosen = list(islice(a.chooser(a.stream_of(1, "c"), [0.8, 0.2]), 10_000))
    assert abs(chosen.count(0) - 8_000) < 4 * 40
    assert [0, 1, 2, 0, 1] == list(islice(a.in_turn(3), 5))


TENANTS = (tenant("a", qps=10), tenant("b", qps=20, weight=3))
LOAD = Load.of(
    TENANTS, [Arrival(5, 1, 0, 2, 7), Arrival(3, 0, 1, 0, 7), Arrival(5, 0, 2, 1, 7), Arrival(9, 1, 0, 0, 7)], 10
)


def test_load_is_sorted_by_time_and_stable():
    assert [(3, 0), (5, 1), (5, 0), (9, 1)] == [(each.at, each.tenant) for each in LOAD]
    assert 4 == len(LOAD)


def test_load_without_a_tenant_keeps_the_others():
    left = LOAD.without("b")
    assert [each for each in LOAD if each.tenant == 0] == list(left)
    assert LOAD.tenants == left.tenants


def test_messages_are_found_by_tenant_and_band():
    assert [1, 3] == LOAD.numbers(tenants=["b"])
    assert [0, 3] == LOAD.numbers(band=0)
    assert [3] == LOAD.numbers(tenants=["b"], band=0)
    assert [0, 3] == [n for n, each in enumerate(LOAD) if each in LOAD.only_band(0)]


def test_load_in_one_band_keeps_its_order():
    assert [each._replace(band=0) for each in LOAD] == list(LOAD.in_one_band())


def test_tenant_can_have_another_spec_if_it_is_valid():
    changed = LOAD.with_spec("a", qps=10, ageing=0.5)
    assert (0.5, None) == (changed.tenants[0].topic.ageing, changed.tenants[1].topic.ageing)
    assert 3 == TENANTS[1].topic.weight
    with pytest.raises(TopicError):
        tenant("c", qps=-1)
