"""The lane of a delay stream: due times, release and cancellation."""

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire import headers as h
from tests.support.lane_host import Host
from tests.unit.core.lane.lanes import acked, lane_of, opened

TICK = 10_000_000
LATER = LaneId("later", 3)
BEGIN = 1_700_000_000 * 1_000_000_000


def put_later(lane: FedLane, sequence: int, due: int, subject: bytes = b"a") -> None:
    """`due` in ns after `BEGIN`, as all times here."""
    lane.take_in_later(subject, sequence, 0, h.encode({h.DUE: str(BEGIN + due)}), b"")


dues = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([b"a", b"b"])), max_size=60)


@given(dues, st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(1, 70)), max_size=40))
def test_due_messages_are_released_in_order_and_none_early(messages, steps):
    """K1, against a sorted list: each release yields the due messages, earliest first and up to the limit, and no
    cancelled one.
    """
    lane = lane_of(LATER)
    waiting = sorted((due, sequence, subject) for sequence, (due, subject) in enumerate(messages, 1))
    for sequence, (due, subject) in enumerate(messages, 1):
        put_later(lane, sequence, due * TICK, subject)
    now = 0
    for step, limit, cancelled in steps:
        now += step
        subject = next((of for _, sequence, of in waiting if sequence == cancelled), b"a")
        waiting, before = [message for message in waiting if message[1] != cancelled], len(waiting)
        assert lane.delayed.cancel(subject, cancelled) is (len(waiting) < before)
        assert (BEGIN + waiting[0][0] * TICK if waiting else None) == lane.delayed.next_due()
        lane.release_due(BEGIN + now * TICK + TICK - 1, limit)
        due_now = [message for message in waiting if message[0] <= now]
        got = {subject: drained(lane, subject) for subject in (b"a", b"b")}
        assert min(limit, len(due_now)) == sum(map(len, got.values()))
        for subject, sequences in got.items():
            expected = [sequence for _, sequence, of in due_now if of == subject]
            assert expected[: len(sequences)] == sequences
        released = {sequence for sequences in got.values() for sequence in sequences}
        waiting = [message for message in waiting if message[1] not in released]
        assert len(waiting) == len(lane.delayed)


def drained(lane: FedLane, subject: bytes) -> list[int]:
    queue = lane.queues.get(subject)
    if queue is None or not queue.due:
        return []
    assert "later" == queue.next_to_read(0).kind
    return queue.next_to_read(10_000).sequences


def test_due_time_is_rounded_up():
    """K1: due times are kept in steps of 10 ms; none is released early."""
    lane = lane_of(LATER)
    put_later(lane, 1, 5 * TICK + 1)
    assert [] == lane.release_due(BEGIN + 6 * TICK - 1, 10)
    assert 1 == len(lane.release_due(BEGIN + 6 * TICK, 10))


def test_checkpoints_keep_settled_delayed_messages_until_they_are_deleted():
    lane = lane_of(LATER)
    for sequence in (1, 2, 3):
        put_later(lane, sequence, 0)
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.removal.note_erased([2])
    lane.log.checkpoint_due = True
    log = fold([settle_record.encode(acked(lane).record)])
    successor = FedLane(LATER, 2, MemoryBudget(), Host(opened))
    assert successor.recover(log, LaneState("s", 1, 3, 0), None)
    log = fold([settle_record.encode(acked(successor).record)])
    assert [1, 3] == [s for s in (1, 2, 3) if s in log.settled]
    assert [1, 3] == successor.removal.choose_erasable(10)
