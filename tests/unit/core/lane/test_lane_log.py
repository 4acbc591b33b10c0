"""A lane's log records, and the identity of its stream."""

from evenlane.engine.core.lane.log_state import LogState, fold
from evenlane.engine.core.lane.settle_log import CHECKPOINT_EVERY
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.records import settle_record
from tests.support.lane_host import Host
from tests.support.lane_owner import LANE
from tests.unit.core.lane.lanes import acked, lane_of, opened


def test_checkpoint_follows_each_100_appends():
    lane = lane_of()
    for sequence in range(1, 2 * CHECKPOINT_EVERY + 5):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    records = []
    for sequence in range(1, 2 * CHECKPOINT_EVERY + 5):
        lane.settle(sequence, 0, 0)
        records.append(acked(lane).record)
    checkpoints = [number for number, record in enumerate(records) if record.checkpoint]
    assert [0, CHECKPOINT_EVERY + 1, 2 * CHECKPOINT_EVERY + 2] == checkpoints


def test_no_checkpoint_is_due_after_the_record_of_a_clean_end():
    """Nothing follows that record, so a node that waited for a checkpoint would not end in time."""
    lane = lane_of()
    for sequence in range(1, CHECKPOINT_EVERY + 1):
        lane.take_in(b"a", sequence, sequence, b"", b"")
        lane.settle(sequence, 0, 0)
        acked(lane)
    lane.stop([])
    assert acked(lane).record.clean
    assert (True, False) == (lane.log.closed, lane.log.checkpoint_due)


def test_no_record_is_cut_when_clean_sending_or_fenced():
    lane = lane_of()
    first = lane.next_append(0)
    assert (True, None) == (first.record.checkpoint, lane.next_append(0))
    lane.log.on_append(first)
    assert None is lane.next_append(0)
    lane.settle(1, 0, 0)
    lane.fenced = True
    assert None is lane.next_append(0)


def test_age_of_oldest_unsynced_counts_from_its_settle():
    """D: dispatch stops while the oldest unsynced settle is older than the interval plus 1 s."""
    lane = lane_of()
    acked(lane)
    assert None is lane.log.oldest_unsynced()
    lane.settle(1, 0, 100)
    lane.settle(2, 0, 200)
    append = lane.next_append(300)
    lane.settle(3, 0, 400)
    assert (100, 3) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)
    lane.log.withdraw(append)
    assert (100, 3) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)
    lane.log.on_append(lane.next_append(500))
    assert (None, 0) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)


def test_age_of_oldest_unsynced_counts_failures_that_are_being_written():
    """D: a failed attempt whose mark isn't durable may be made again, as a handled message may."""
    lane = lane_of()
    acked(lane)
    lane.log.mark_failed(1, 0, 100)
    append = lane.next_append(300)
    assert (100, 1) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)
    lane.log.on_append(append)
    assert None is lane.log.oldest_unsynced()


def test_checkpoint_omits_settles_below_the_watermark():
    """With such a settle, the checkpoint could not be packed."""
    lane = lane_of()
    acked(lane)
    for sequence in range(1, 11):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    for sequence in (3, 10):
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.removal.note_erased(lane.removal.choose_erasable(10))
    for sequence in (1, 2, 4, 6):
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.log.checkpoint_due = True
    log = fold([settle_record.encode(lane.next_append(0).record)])
    assert (4, [(6, 6)]) == (log.settled.watermark, list(log.settled.above()))


def test_settle_during_deletes_is_logged_and_deleted_later():
    """D: a settle that the next checkpoint omits would be handled again after a crash."""
    lane = lane_of()
    acked(lane)
    for sequence in range(1, 8):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    for sequence in (3, 6):
        lane.settle(sequence, 0, 0)
    acked(lane)
    batch = lane.removal.choose_erasable(10)
    lane.settle(5, 0, 0)
    acked(lane)
    lane.removal.note_erased(batch)
    assert ([3, 6], [5]) == (batch, lane.removal.choose_erasable(10))
    lane.log.checkpoint_due = True
    assert 5 in fold([settle_record.encode(lane.next_append(0).record)]).settled


# ---- identity


def test_pending_purge_is_no_sign_of_another_stream():
    """D: an owner may die between the log's acknowledgement and the purge; no message is handed out again."""
    lane = lane_of()
    for sequence in (1, 2, 3):
        lane.take_in(b"a", sequence, sequence, b"", b"")
        lane.settle(sequence, 0, 0)
    log = fold([settle_record.encode(acked(lane).record)])
    successor = FedLane(LANE, 2, MemoryBudget(), Host(opened))
    state = LaneState("s", 1, 4, 4)
    assert successor.recover(log, state, 3)
    assert (3, True) == (successor.position, successor.is_same(state, 4))


def test_stream_that_lost_undelivered_messages_is_another_one():
    """E12: the end of the catch-up would take the new messages for deleted ones."""
    lane = FedLane(LANE, 1, MemoryBudget(), Host(opened))
    lane.recover(LogState(), LaneState("s", 1, 9, 90), None)
    assert not lane.is_same(LaneState("s", 1, 5, 50), None)
    assert not lane.is_same(LaneState("s", 1, 12, 120), 91)
    assert lane.is_same(LaneState("s", 1, 12, 120), 90)


def test_unroutable_message_is_not_kept():
    lane = lane_of(open_queue=lambda *_: None)
    lane.take_in(b"stray", 1, 1, b"", b"")
    assert (1, {}) == (lane.position, lane.queues)


def test_head_of_a_message_that_is_passed_over_needs_no_body():
    """K10: a named subscription buries no strays, so its feed needn't fetch the bodies of what it passes over."""
    passed = []
    host = Host(lambda _lane, _subject, entry: passed.append(entry and entry[1]), needs_stray_bodies=False)
    lane = FedLane(LANE, 1, MemoryBudget(), host)
    lane.recover(LogState(), LaneState("s", 0, 0, 0), None)
    assert lane.take_in_head(b"other", 1, 1, b"", 10_000)
    assert lane.take_in_head(b"other", 1, 1, b"", 10_000)  # a repeated one is ignored
    assert (1, [1]) == (lane.position, [each for each in passed if each is not None])
    assert not lane_of(open_queue=lambda *_: None).take_in_head(b"stray", 1, 1, b"", 10_000)
