"""The average of slots in flight against its whole history, and the room for it against the formula."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.priority.headroom import SECOND, TAU, Average, opens_in, room
from tests.oracles.examples import examples

MS = 1_000_000


def weighed(past, now):
    """The average at `now` of all earlier counts, (since, count), with each instant weighed by exp(-age / TAU)."""
    ends = [since for since, _ in past[1:]] + [now]
    return sum(
        count * (math.exp((end - now) / TAU) - math.exp((since - now) / TAU))
        for (since, count), end in zip(past, ends, strict=True)
    )


steps = st.lists(
    st.tuples(st.sampled_from([0, 1, MS, 20 * MS, SECOND]) | st.integers(0, 300 * MS), st.integers(-5, 5)), max_size=60
)


@given(steps, st.integers(0, 3 * SECOND))
@examples(150)
def test_average_covers_the_whole_history(changes, then):
    average, now, past = Average(10**18), 10**18, [(10**18, 0)]
    for passed, by in changes:
        now += passed
        average.move(max(by, -average.count), now)
        past.append((now, average.count))
    now += then
    exact = weighed(past, now)
    most = max(count for _, count in past)
    # Spans of up to TAU / 16 are weighed as one, and a second read within TAU / 500 returns the same average.
    assert exact == pytest.approx(average.read(now), abs=most * (1 / 16 + 1 / 500) + 0.001)


@given(st.integers(1, 50))
@examples(30)
def test_average_converges_to_a_constant_count(count):
    average = Average(0)
    average.move(count, 0)
    assert count == pytest.approx(average.read(20 * TAU), rel=1e-6)
    average.move(-count, 20 * TAU)
    assert count / math.e == pytest.approx(average.read(21 * TAU), rel=0.01)
    assert room(average.read(40 * TAU)) == pytest.approx(1, abs=0.1)


def test_stopped_clock_does_not_move_the_average():
    average = Average(5)
    for _ in range(100):
        average.move(1, 5)
        average.move(-1, 5)
        assert 0 == average.read(5)
    average.move(7, 5)
    assert 0 == average.read(5)


@given(st.integers(0, 200))
@examples(50)
def test_room_is_mean_plus_two_deviations_plus_one(average):
    assert average + 2 * math.sqrt(average) + 1 == pytest.approx(room(average))


averages = st.floats(0, 60)


@given(averages, st.integers(0, 40), st.integers(0, 60), st.integers(1, 60))
@examples(300)
def test_opens_in_is_the_earliest_instant_with_room(above, count, held, slots):
    """Against repeated checks while the average falls towards the count."""
    wait = opens_in(count + above, count, held, slots)

    def opens(after):
        return held + room(count + above * math.exp(-after / TAU)) < slots

    if wait is None:
        assert not any(opens(n * TAU / 4) for n in range(120))
    else:
        assert opens(wait + MS)
        assert wait < MS or not opens(wait - MS)
