"""How long settled messages are kept: by age, and by the size of their stream."""

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane.retention import Retention, SettledHistory
from evenlane.engine.core.lane.settled_set import SettledSet

AGE = 800
steps = st.lists(st.tuples(st.integers(0, 400), st.lists(st.integers(1, 9_000), max_size=3)), max_size=30)


@given(steps)
def test_nothing_younger_goes(steps):
    """K10"""
    history, settled, since, now = SettledHistory(), SettledSet(-1), {}, 0
    for pause, sequences in steps:
        for sequence in sequences:
            settled.add(sequence)
            since.setdefault(sequence, now)
        aged = history.find_aged(settled, now, AGE)
        assert all(now - at >= AGE for sequence, at in since.items() if sequence in aged)
        now += pause


@given(st.lists(st.integers(0, 4_000), max_size=20))
def test_each_message_goes_at_most_a_quarter_later(times):
    """K10: with a look every sixteenth of the age, as the owner of a lane has."""
    history, settled = SettledHistory(), SettledSet(-1)
    for now in range(0, 6_000, AGE // 16):
        settled.add_sorted([n for n, at in enumerate(sorted(times), 1) if now - AGE // 16 < at <= now])
        aged = history.find_aged(settled, now, AGE)
        assert all(n in aged for n, at in enumerate(sorted(times), 1) if now - at >= AGE + AGE // 4)


def test_snapshots_are_independent():
    history, settled = SettledHistory(), SettledSet(-1)
    settled.add_run(1, 5_000)
    history.find_aged(settled, 0, AGE)
    settled.discard(3)
    settled.add(6_000)
    aged = history.find_aged(settled, AGE, AGE)
    assert [True, True, False] == [each in aged for each in (3, 5_000, 6_000)]


@given(st.integers(1, 10_000), st.integers(1, 10_000_000), st.integers(1, 10_000_000))
def test_excess_is_what_makes_the_stream_small_enough(messages, size, most):
    excess = Retention(AGE, most).count_excess(messages, size)
    assert (excess == 0) == (size <= most)
    assert size - excess * size / messages <= most + 1e-6
    assert excess <= messages
