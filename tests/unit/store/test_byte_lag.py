"""A feed leaves bodies in the stream only if large messages arrive faster than they are read (E5, F10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.store.byte_lag import ByteLag

KIB, MIB = 1 << 10, 1 << 20


def lagging(lag: ByteLag) -> list[bool]:
    """Four turns of 1 MiB messages, with many more pending."""
    return [lag.note_pull(1, MIB, 100) for _ in range(4)]


def flooded(lag: ByteLag, messages: int = 100) -> bool:
    """A second of a flood of 1 MiB messages."""
    for _ in range(messages):
        lag.note_left(MIB)
    return lag.on_second()


def test_bodies_are_left_after_several_lagging_turns():
    lag = ByteLag()
    assert [False, False, False, True] == lagging(lag)
    assert lag.leaves_bodies


def test_large_message_before_small_ones_is_no_flood():
    lag = ByteLag()
    assert not any([lag.note_pull(1, MIB, 1_000_000), *(lag.note_pull(8_000, MIB, 1_000_000) for _ in range(20))])


def test_few_pending_large_messages_are_no_flood():
    lag = ByteLag()
    assert not any(lag.note_pull(1, MIB, 3) for _ in range(20))


@pytest.mark.parametrize(("waiting", "leaves"), [(15, False), (16, True)])
def test_bodies_are_left_from_16_mib_pending(waiting, leaves):
    """The bar of decision 0029: next to a flood, the longest wait is about a second."""
    lag = ByteLag()
    assert leaves == any(lag.note_pull(1, MIB, waiting) for _ in range(4))


def test_turn_without_lag_restarts_count():
    lag = ByteLag()
    for _ in range(20):
        assert not any(lag.note_pull(1, MIB, 100) for _ in range(3))
        assert not lag.note_pull(1, MIB, 0)


def test_empty_pull_does_not_change_count():
    """The next message was larger than the pull."""
    lag = ByteLag()
    assert [False, True] == [any(lag.note_pull(*pull, 100) for pull in ((1, MIB), (0, 0))) for _ in range(4)][2:]


def test_flood_ends_after_three_calm_seconds():
    lag = ByteLag()
    lagging(lag)
    assert not any(flooded(lag) for _ in range(10))
    assert [False, False, True] == [flooded(lag, 10) for _ in range(3)]
    assert not lag.leaves_bodies


def test_ongoing_flood_is_not_calm():
    lag = ByteLag()
    lagging(lag)
    for _ in range(5):
        assert not any([lag.on_second(), lag.on_second(), flooded(lag)])


def test_small_messages_are_calm_whatever_their_total():
    """Reading them with their bodies costs less."""
    lag = ByteLag()
    lagging(lag)
    for _ in range(3):
        for _ in range(10_000):
            lag.note_left(4 * KIB)
        ended = lag.on_second()
    assert ended


def test_requested_body_ends_flood():
    lag = ByteLag()
    assert not lag.require_body()
    lagging(lag)
    assert lag.require_body()
    assert not lag.leaves_bodies
    assert [False, False, False, True] == lagging(lag)


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 30 * KIB), st.integers(0, 1_000_000))))
def test_bodies_below_32_kib_are_never_left(pulls):
    lag = ByteLag()
    assert not any(lag.note_pull(count, count * size, pending) for count, size, pending in pulls)
