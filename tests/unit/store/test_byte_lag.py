"""When a feed leaves bodies in the stream: only where large messages come faster than they are read (E5, F10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.store.byte_lag import ByteLag

KIB, MIB = 1 << 10, 1 << 20


def lagging(lag: ByteLag) -> list[bool]:
    """Four turns of 1 MiB messages, with many more behind them."""
    return [lag.came(1, MIB, 100) for _ in range(4)]


def flooded(lag: ByteLag, messages: int = 100) -> bool:
    """A second of a flood of 1 MiB messages."""
    for _ in range(messages):
        lag.left(MIB)
    return lag.second_passed()


def test_large_messages_that_wait_turn_after_turn_are_left():
    lag = ByteLag()
    assert [False, False, False, True] == lagging(lag)
    assert lag.leaves_bodies


def test_one_large_message_before_many_small_ones_is_no_flood():
    lag = ByteLag()
    assert not any([lag.came(1, MIB, 1_000_000), *(lag.came(8_000, MIB, 1_000_000) for _ in range(20))])


def test_large_messages_that_hardly_wait_are_no_flood():
    lag = ByteLag()
    assert not any(lag.came(1, MIB, 3) for _ in range(20))


@pytest.mark.parametrize(("waiting", "leaves"), [(15, False), (16, True)])
def test_the_bodies_are_left_from_16_mib_on(waiting, leaves):
    """The bar of decision 0029: the longest wait beside a flood is about a second."""
    lag = ByteLag()
    assert leaves == any(lag.came(1, MIB, waiting) for _ in range(4))


def test_turns_that_do_not_lag_begin_the_count_anew():
    lag = ByteLag()
    for _ in range(20):
        assert not any(lag.came(1, MIB, 100) for _ in range(3))
        assert not lag.came(1, MIB, 0)


def test_a_pull_that_brought_nothing_says_nothing():
    """The next message was larger than it."""
    lag = ByteLag()
    assert [False, True] == [any(lag.came(*pull, 100) for pull in ((1, MIB), (0, 0))) for _ in range(4)][2:]


def test_three_calm_seconds_end_it():
    lag = ByteLag()
    lagging(lag)
    assert not any(flooded(lag) for _ in range(10))
    assert [False, False, True] == [flooded(lag, 10) for _ in range(3)]
    assert not lag.leaves_bodies


def test_a_flood_that_goes_on_is_not_calm():
    lag = ByteLag()
    lagging(lag)
    for _ in range(5):
        assert not any([lag.second_passed(), lag.second_passed(), flooded(lag)])


def test_many_small_messages_are_calm_whatever_their_bytes():
    """They are read with their bodies at less cost."""
    lag = ByteLag()
    lagging(lag)
    for _ in range(3):
        for _ in range(10_000):
            lag.left(4 * KIB)
        ended = lag.second_passed()
    assert ended


def test_a_body_that_is_wanted_is_not_left():
    lag = ByteLag()
    assert not lag.needs_body()
    lagging(lag)
    assert lag.needs_body()
    assert not lag.leaves_bodies
    assert [False, False, False, True] == lagging(lag)


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 30 * KIB), st.integers(0, 1_000_000))))
def test_messages_below_32_kib_never_are(pulls):
    lag = ByteLag()
    assert not any(lag.came(count, count * size, pending) for count, size, pending in pulls)
