"""Block timer: the time for which a loop has been blocked, by its heartbeat."""

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.runtime.loop_watch.block_timer import BlockTimer

SECOND = 1_000_000_000
QUARTER = SECOND // 4


def test_time_counts_from_the_last_beat():
    """F1."""
    timer = BlockTimer(0, 0)
    assert [QUARTER, 2 * QUARTER] == [timer.look(0, QUARTER), timer.look(0, 2 * QUARTER)]
    assert 0 == timer.look(1, 3 * QUARTER)
    assert QUARTER == timer.look(1, SECOND)


def test_time_of_a_stopped_process_does_not_count():
    """F1, Z1: SIGSTOP for a minute isn't a handler's block, and must not end the process."""
    timer = BlockTimer(0, 0)
    timer.look(0, QUARTER)
    assert timer.look(0, 61 * SECOND) <= 2 * SECOND


@given(st.lists(st.tuples(st.integers(0, 5 * SECOND), st.booleans()), max_size=30))
def test_blocked_time_never_exceeds_the_time_since_a_beat(looks):
    """F1: by an oracle that keeps the time of the last look at which the loop turned."""
    timer, now, beat, turned_at = BlockTimer(0, 0), 0, 0, 0
    for gap, turns in looks:
        now, beat = now + gap, beat + turns
        turned_at = now if turns else turned_at
        blocked = timer.look(beat, now)
        assert 0 <= blocked <= now - turned_at
        if all(each <= SECOND for each, _ in looks):
            assert now - turned_at == blocked
