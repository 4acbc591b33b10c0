"""Tests of the oracle of fairness against all intervals, one by one, and against fair and unfair orders."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.oracles.fairness import Trace, round_robin_by_unit

WEIGHTS = {"a": 1.0, "b": 3.0, "c": 7.0}


def traced(order, weights):
    trace = Trace(weights)
    for tenant in weights:
        trace.begin(tenant)
    for tenant, amount in order:
        trace.serve(tenant, amount)
    return trace


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=20))
@examples(100)
def test_gap_is_that_of_the_worst_interval(order):
    trace = traced(order, WEIGHTS)
    for one, other in combinations(WEIGHTS, 2):
        got = lambda part, tenant: sum(n for each, n in part if each == tenant) / WEIGHTS[tenant]  # noqa: E731
        parts = [order[i:j] for i in range(len(order) + 1) for j in range(i, len(order) + 1)]
        worst = max(abs(got(part, one) - got(part, other)) for part in parts)
        assert worst == pytest.approx(trace.gap(one, other))


def test_gap_counts_only_intervals_with_both_backlogged():
    trace = Trace({"a": 1.0, "b": 1.0})
    trace.begin("a")
    for _ in range(50):
        trace.serve("a", 10)
    trace.begin("b")
    trace.serve("a", 10)
    trace.serve("b", 10)
    trace.end("b")
    trace.serve("a", 10)
    trace.begin("b")
    trace.serve("a", 10)
    trace.serve("a", 10)
    assert 20 == trace.gap("a", "b")


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 12), min_size=2))
@examples(50)
def test_fluid_order_keeps_the_bound(weights):
    order = [(tenant, 1) for tenant in round_robin_by_unit(weights, 3)]
    trace = traced(order, weights)
    for one, other in combinations(weights, 2):
        assert trace.gap(one, other) <= trace.bound(one, other)
    unfair = traced(sorted(order), weights)
    least, most = min(weights), max(weights)
    assert 3 == pytest.approx(unfair.gap(least, most))
    assert sum(weights.values()) * 3 == len(order)
