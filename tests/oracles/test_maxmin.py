"""Tests of the max-min oracle against shares computed by hand, and against the definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.oracles.maxmin import poured

amounts = st.floats(0, 1_000)
thirst = st.lists(st.tuples(st.floats(0.01, 100), amounts), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("capacity", "weights", "demands", "shares"),
    [
        (10, [1, 1], [100, 100], [5, 5]),
        (10, [1, 1], [2, 100], [2, 8]),
        (10, [1, 4], [100, 100], [2, 8]),
        (10, [1, 1, 2], [1, 100, 100], [1, 3, 6]),
        (10, [1, 1, 1], [2, 2.6, 4], [2, 2.6, 4]),  # all fit in
        (10, [1, 1, 1, 1], [2, 2.6, 4, 5], [2, 2.6, 2.7, 2.7]),  # the example of Bertsekas and Gallager
        (0, [1, 2], [5, 5], [0, 0]),
    ],
)
def test_shares_match_examples(capacity, weights, demands, shares):
    assert pytest.approx(shares, abs=1e-9) == poured(capacity, weights, demands)


@examples(200)
@given(thirst, amounts)
def test_shares_are_max_min_fair(each, capacity):
    """No share can grow except at the cost of one that is smaller for its weight."""
    weights, demands = zip(*each, strict=True)
    shares = poured(capacity, weights, demands)
    assert pytest.approx(min(capacity, sum(demands)), abs=1e-6) == sum(shares)
    highest = max(share / weight for share, weight in zip(shares, weights, strict=True))
    for share, weight, demand in zip(shares, weights, demands, strict=True):
        assert share <= demand
        assert share >= demand - 1e-6 or share / weight >= highest - 1e-6
