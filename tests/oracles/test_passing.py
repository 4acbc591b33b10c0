"""Tests of the oracle of tenants that are passed over, with orders that are fair and unfair."""

import pytest

from tests.oracles.passing import Bucket, Passing, Tenant

MS = 1_000_000


def tenant(weight, longest=10 * MS, rate=1_000.0, size=1):
    return Tenant(weight, longest, Bucket(rate, size, size, 0), {"0": Bucket(rate, size, size, 0)})


def audit(order, service=10 * MS, **tenants):
    """The oracle after messages that start at (ms, name)."""
    passing = Passing(tenants)
    for at, name in order:
        passing.start(at * MS, name, "0", service)
    return passing


def test_order_by_weight_is_within_the_bound():
    order = [(n, "ab"[n % 4 == 0]) for n in range(400)]
    passing = audit(order, a=tenant(3.0), b=tenant(1.0))
    assert passing.excess("a", "b") <= passing.bound("a", "b")
    assert passing.excess("b", "a") <= passing.bound("b", "a")


def test_turns_in_spite_of_weights_exceed_the_bound():
    passing = audit([(n, "ab"[n % 2]) for n in range(400)], a=tenant(3.0), b=tenant(1.0))
    assert passing.excess("a", "b") > 10 * passing.bound("a", "b")
    assert passing.excess("b", "a") <= passing.bound("b", "a")


def test_unfair_interval_isnt_made_up_for_by_others():
    favoured = [(n, "a") for n in range(100)]
    passing = audit([*favoured, *((100 + n, "b") for n in range(50))], a=tenant(1.0), b=tenant(1.0))
    assert passing.excess("b", "a") == 100 * 10 * MS


def test_messages_that_start_without_a_token_of_the_other_dont_count():
    starts = [(0, "a"), *((n, "b") for n in range(1, 100))]
    passing = audit(starts, a=tenant(1.0, rate=10.0), b=tenant(1.0))
    assert passing.excess("a", "b") == 0


def test_one_message_is_allowed_per_gap_and_no_second():
    starts = []
    for second in range(1, 50):
        starts += [(1000 * second + at, name) for at, name in [(0, "a"), (1, "b"), (998, "b"), (999, "b")]]
    once = audit([each for each in starts if each[0] % 1000 != 998], a=tenant(1e6, rate=2.0), b=tenant(1.0))
    twice = audit(starts, a=tenant(1e6, rate=2.0), b=tenant(1.0))
    assert once.excess("a", "b") <= once.bound("a", "b") < twice.excess("a", "b")


def test_time_without_a_handler_is_a_gap():
    order = [(2 * n + at, name) for n in range(100) for at, name in [(0, "b"), (0, "a")]]
    idle = audit(order, MS, a=tenant(1e6, MS), b=tenant(1.0, MS))
    busy = audit(order, 2 * MS, a=tenant(1e6, 2 * MS), b=tenant(1.0, 2 * MS))
    assert idle.excess("a", "b") <= idle.bound("a", "b")
    assert busy.excess("a", "b") > 10 * busy.bound("a", "b")


def test_message_without_a_token_is_found():
    with pytest.raises(AssertionError, match="without a token"):
        audit([(0, "a"), (0, "a")], a=tenant(1.0))
