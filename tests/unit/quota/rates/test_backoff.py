"""The delay before the next attempt of a failed message (K2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.rates.backoff import Backoff, retry_delay_s


@pytest.mark.parametrize(("attempt", "delay"), [(1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (12, 600), (5_000, 600)])
def test_delay_doubles_up_to_the_cap(attempt, delay):
    assert delay == retry_delay_s(Backoff(), attempt, 0.5)


@pytest.mark.parametrize(
    ("attempt", "unit", "delay"),
    [(3, 0.0, 3.6), (3, 0.25, 3.8), (3, 0.5, 4.0), (3, 0.75, 4.2), (3, 1.0, 4.4), (99, 0.0, 540), (99, 1.0, 660)],
)
def test_jitter_spreads_delays_evenly(attempt, unit, delay):
    """Capped ones, too."""
    assert delay == pytest.approx(retry_delay_s(Backoff(), attempt, unit))


def test_factor_of_1_is_a_constant_delay():
    assert {5.0} == {retry_delay_s(Backoff(base=5, factor=1, jitter=0), n, 0.9) for n in range(1, 2_000)}


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_1(attempt):
    with pytest.raises(ValueError, match="attempts count from 1"):
        retry_delay_s(Backoff(), attempt, 0.5)


@given(
    st.builds(Backoff, st.floats(0.001, 99), st.floats(1, 100), st.floats(99, 9_999), st.floats(0, 1)),
    st.integers(1, 100_000),
    st.floats(0, 1, exclude_max=True),
)
def test_delay_stays_within_bounds_and_never_shrinks(backoff, attempt, unit):
    delay = retry_delay_s(backoff, attempt, unit)
    assert backoff.base * (1 - backoff.jitter) * 0.999 <= delay
    assert delay <= backoff.cap * (1 + backoff.jitter) * 1.001
    assert delay <= retry_delay_s(backoff, attempt + 1, unit)
