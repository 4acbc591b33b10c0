"""Tests of the oracle of rate limits against a second definition."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.oracles.limiter import SECOND, Changing, Limiter, excess, steady

gaps = st.lists(st.integers(0, 30), max_size=25)


def times_of(steps):
    return [sum(steps[: n + 1]) for n in range(len(steps))]


@given(gaps, st.integers(1, 12))
@examples(100)
def test_excess_is_that_of_the_worst_window(steps, interval):
    times = times_of(steps)
    windows = [
        sum(begin <= at <= end for at in times) - Fraction(end - begin, interval)
        for begin in times
        for end in times
        if begin <= end
    ]
    assert max(windows, default=0) == excess(Fraction(at, interval) for at in times)


@given(gaps, st.integers(1, 12), st.integers(1, 6))
@examples(100)
def test_limiter_refuses_exactly_what_breaks_a_window(steps, interval, burst):
    limiter = Limiter(interval, burst)
    for now in times_of(steps):
        would = excess(Fraction(at, interval) for at in [*limiter.times, now])
        assert (would <= burst) == limiter.admit(now)


@given(gaps, st.integers(1, 12), st.integers(1, 6))
@examples(50)
def test_earliest_is_the_first_admissible_time(steps, interval, burst):
    limiter = Limiter(interval, burst)
    now = 0
    for step in steps:
        now = max([now, *limiter.times]) + step
        first = limiter.earliest(now)
        assert first == next(at for at in range(now, now + interval * 30) if _passes(limiter, at))
        assert limiter.admit(first)


def _passes(limiter, last):
    return excess(Fraction(at, limiter.interval) for at in [*limiter.times, last]) <= limiter.burst


@pytest.mark.parametrize(("burst", "at_once"), [(1, 1), (4, 4)])
def test_burst_is_admitted_at_once(burst, at_once):
    limiter = Limiter(100, burst)
    assert at_once == sum(limiter.admit(0) for _ in range(20))
    assert (False, True, False) == (limiter.admit(99), limiter.admit(100), limiter.admit(100))


def test_rates_are_exact():
    assert Fraction(1, 3) != Fraction(1 / 3)
    assert Fraction(0.3) * 10**6 == steady(0.3)(10**6 * SECOND)
    assert 0 == excess([])
    assert 1 == excess([steady(1)(5 * SECOND)])
    assert 1 == excess([0, 1, 2])
    assert 2 == excess([0, 0, 1])


def test_changed_rate_bends_the_line():
    due = Changing(10, 0)
    due.change(100, 2 * SECOND, extra=1)
    due.change(5, 4 * SECOND)
    assert [10, 20 + 1, 120 + 1, 220 + 1, 225 + 1] == [due(n * SECOND) for n in (1, 2, 3, 4, 5)]
