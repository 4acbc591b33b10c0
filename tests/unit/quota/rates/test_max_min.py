"""Fair shares by water filling, weighted and even (X1, W)."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.rates.max_min import fair_shares
from tests.oracles.examples import examples
from tests.oracles.maxmin import poured

parts = st.just(0.0) | st.floats(1e-6, 1)


@examples(300)
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 1_000)), min_size=1, max_size=8),
    st.floats(0, 1_000),
)
def test_fair_shares_match_those_by_pouring(each, capacity):
    """X1."""
    weights, demands = zip(*each, strict=True)
    assert pytest.approx(poured(capacity, weights, demands), abs=1e-6) == fair_shares(capacity, weights, demands)


@given(st.lists(parts, min_size=1, max_size=9), st.floats(0, 3))
@examples(200)
def test_small_demands_are_met_in_full(demands, amount):
    """W: with even weights, a share is below the largest one only if it meets its demand."""
    shares = fair_shares(amount, [1.0] * len(demands), demands)
    assert isclose(sum(shares), min(amount, sum(demands)), abs_tol=1e-9)
    most = max(shares)
    assert all(share >= most - 1e-9 or isclose(share, demand) for share, demand in zip(shares, demands, strict=True))


def test_no_demands_give_no_shares():
    assert [] == fair_shares(1.0, [], [])
