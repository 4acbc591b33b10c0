"""Erlang's delay formula, against two independent computations."""

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.control.scaling.erlang import IMBALANCE, nodes_needed, wait_exceeds


def delayed(slots, offered):
    """The probability that all slots are busy, from the stationary distribution of the birth-death chain, exactly."""
    offered = Fraction(offered)
    states = [offered**count / math.factorial(count) for count in range(slots)]
    last = offered**slots / math.factorial(slots) / (1 - offered / slots)
    return float(last / (sum(states) + last))


@given(st.integers(1, 80), st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100))
def test_probability_that_all_slots_are_busy_is_that_of_the_chain(slots, utilisation):
    """P10: the part of `need` that says how many nodes a target takes."""
    offered = utilisation * slots
    assert math.isclose(delayed(slots, offered), wait_exceeds(slots, float(offered), 1.0, 0.0), rel_tol=1e-9)


def waits(slots, offered, handling_s, messages, rng):
    """The waits of messages in a queue with Poisson arrivals and exponential handlers, message by message."""
    free, now = [0.0] * slots, 0.0
    for _ in range(messages):
        now += rng.expovariate(offered / handling_s)
        soonest = min(range(slots), key=free.__getitem__)
        start = max(now, free[soonest])
        free[soonest] = start + rng.expovariate(1 / handling_s)
        yield start - now


def test_waits_are_those_of_a_queue_that_is_played_through():
    """P10: 8 slots at 90 %; the share of long waits is that of the formula, within its noise."""
    played = [*waits(8, 7.2, 0.5, 120_000, random.Random(7))]
    for wait_s in (0.1, 0.5, 1.0):
        share = sum(wait > wait_s for wait in played) / len(played)
        assert share == pytest.approx(wait_exceeds(8, 7.2, 0.5, wait_s), rel=0.15)


def test_more_demand_than_slots_waits_for_ever():
    assert (1.0, 1.0, 0.0) == (wait_exceeds(4, 4.0, 1, 9), wait_exceeds(4, 5.0, 1, 9), wait_exceeds(4, 0.0, 1, 9))


@given(
    demand=st.floats(0, 1e4),
    slots=st.integers(1, 200),
    handling_s=st.floats(0, 30),
    wait_s=st.floats(0, 30),
    most=st.integers(1, 300),
)
def test_number_of_nodes_is_the_smallest_that_is_enough(demand, slots, handling_s, wait_s, most):
    """P10."""
    nodes = nodes_needed(demand, slots, handling_s, 0.99, wait_s, most)

    def is_enough(number):
        return wait_exceeds(slots, IMBALANCE * demand / number, handling_s, wait_s) <= 1 - 0.99

    assert 1 <= nodes <= most + 1
    assert nodes == most + 1 or is_enough(nodes)
    assert nodes == 1 or not is_enough(nodes - 1)


def test_longer_target_takes_fewer_nodes():
    """P10: 1,000 slots of demand at 64 a node; nodes can be nearer to full if a message may wait longer."""
    counts = [nodes_needed(1_000, 64, 1.0, 0.99, wait_s, 100) for wait_s in (0.0, 0.2, 2.0)]
    assert sorted(counts, reverse=True) == counts
    assert counts[0] > counts[-1] >= 1_000 / 64
