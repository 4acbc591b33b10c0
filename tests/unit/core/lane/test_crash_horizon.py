"""Clean ends, and the crash horizon up to which messages may have been in flight (X11): the pure part."""

import msgspec
import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.crash_horizon import has_ended_cleanly, horizon_of
from evenlane.engine.core.lane.log_state import LogState, fold
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.records.settle_record import VERSION, SettleRecord, encode
from evenlane.engine.core.wire.varint_runs import unpack_runs
from tests.support.lane_host import Host

EPOCH = 7  # of the node that takes over
NO_LOG = LogState()


def stream(first=1, last=9):
    return LaneState("s", first, last, 99)


def clean_end(clean, epoch=5, **fields):
    return LogState(epoch=epoch, created="s", clean=clean, **fields)


@pytest.mark.parametrize(
    ("log", "state", "released", "clean"),
    [
        pytest.param(clean_end(True), stream(), (), True, id="last record is clean"),
        pytest.param(clean_end(False), stream(), (), False, id="last record is not clean"),
        pytest.param(clean_end(None), stream(), (), False, id="last record of an older release"),
        pytest.param(clean_end(False), stream(), {5}, True, id="held key of the last epoch"),
        pytest.param(clean_end(None), stream(), {5}, True, id="held key, and a record of an older release"),
        pytest.param(clean_end(False), stream(), {4, 6}, False, id="held keys of other epochs"),
        pytest.param(clean_end(False, epoch=EPOCH), stream(), (), True, id="own epoch: a repeated takeover"),
        pytest.param(clean_end(True, unreadable=1), stream(), (), False, id="an unreadable record"),
        pytest.param(clean_end(True, epoch=EPOCH, unreadable=1), stream(), (), True, id="own and an unreadable record"),
        pytest.param(LogState(unreadable=1), stream(), (), False, id="unreadable records only"),
        pytest.param(NO_LOG, stream(0, 0), (), True, id="no log, new stream"),
        pytest.param(NO_LOG, stream(1, 9), (), True, id="no log, backlog without an owner"),
        pytest.param(NO_LOG, stream(2, 9), (), False, id="lost log, some messages removed"),
        pytest.param(NO_LOG, stream(10, 9), (), False, id="lost log, all messages removed"),
        pytest.param(NO_LOG, stream(2, 9), {0}, False, id="lost log, held key of epoch 0"),
    ],
)
def test_end_is_clean_only_with_a_record_of_it(log, state, released, clean):
    """X11: without a record or a held key, the end counts as a crash."""
    assert clean is has_ended_cleanly(log, state, EPOCH, released)


@pytest.mark.parametrize(
    ("log", "state", "clean", "horizon"),
    [
        pytest.param(clean_end(False), stream(1, 9), False, 9, id="crash: end of the stream"),
        pytest.param(clean_end(True), stream(1, 9), True, 0, id="clean end: none"),
        pytest.param(clean_end(True, horizon=4), stream(1, 9), True, 4, id="clean end keeps an earlier horizon"),
        pytest.param(clean_end(False, horizon=4), stream(1, 9), False, 9, id="two crashes: end at the later one"),
        pytest.param(
            clean_end(False, horizon=12), stream(1, 9), False, 12, id="two crashes: higher end of a rolled back stream"
        ),
        pytest.param(clean_end(True, horizon=4), stream(4, 9), True, 4, id="last message below it is left"),
        pytest.param(clean_end(True, horizon=4), stream(5, 9), True, 0, id="all messages below it are removed"),
        pytest.param(clean_end(False), stream(10, 9), False, 0, id="empty stream: none"),
        pytest.param(NO_LOG, stream(0, 0), True, 0, id="new stream: none"),
        pytest.param(LogState(unreadable=1), stream(3, 9), False, 9, id="unreadable log: end of the stream"),
    ],
)
def test_horizon_lasts_until_messages_below_it_are_removed(log, state, clean, horizon):
    """X11: the horizon never shrinks before that."""
    assert horizon == horizon_of(log, state, clean=clean)


# ---- the horizon in the log's records


def record(number, **fields):
    return encode(SettleRecord(VERSION, 5, number, "s", 9, 99, 0, b"", **fields))


def test_last_readable_record_counts():
    """X11: neither the highest horizon nor the first record counts."""
    log = fold([record(1, horizon=9, clean=False), record(2, horizon=4, clean=True), b"\xc1"])
    assert (4, True, 1) == (log.horizon, log.clean, log.unreadable)
    assert (0, False) == (fold([record(1, horizon=9, clean=True), record(2, clean=False)]).horizon, False)


def test_record_of_older_release_is_no_clean_end():
    """Rolling upgrade: such a record has neither `horizon` nor `clean`."""
    old = [VERSION, 5, 1, "s", 9, 99, 0, b"", False, b""]

    log = fold([msgspec.msgpack.encode(old)])
    assert (5, 0, None) == (log.epoch, log.horizon, log.clean)


# ---- the records of a lane


@pytest.fixture
def lane():
    """A lane with the unsettled messages 1 to 9 and the horizon 6; its fence isn't written yet."""
    made = FedLane(LaneId("lanes", 3), EPOCH, MemoryBudget(), Host())
    made.recover(clean_end(False), stream(), 99, horizon=6)
    return made


def durable(lane, *, fence=False):
    """The lane's next record, acknowledged by the log."""
    append = lane.next_append(0, fence=fence)
    if append is None:
        return None
    lane.log.on_append(append)
    return append.record


class TestRecordsOfALane:
    def test_fence_carries_the_horizon(self, lane):
        """X11: no message starts before the fence is written, so a crash before it can't lose the horizon."""
        fence = durable(lane, fence=True)
        assert (6, False, True) == (fence.horizon, fence.clean, fence.checkpoint)

    def test_fence_without_checkpoint_carries_the_horizon(self, lane):
        """X11: the short fence of a lane whose checkpoint is too large."""
        append = lane.next_append(0, fence=True)
        lane.log.withdraw(append)
        lane.log.defer_checkpoint()
        fence = durable(lane, fence=True)
        assert (6, False, False) == (fence.horizon, fence.clean, fence.checkpoint)

    def test_records_carry_the_horizon_until_the_watermark_reaches_it(self, lane):
        """X11."""
        durable(lane, fence=True)
        found = []
        for last in (3, 5, 6, 7):
            for sequence in range(max(lane.settled.watermark, 0) + 1, last + 1):
                lane.settle(sequence, lane.generation, 0)
            durable(lane)
            lane.settle(9, lane.generation, 0)  # so that there is a record to write
            found.append(durable(lane).horizon)
        assert [6, 6, 0, 0] == found

    def test_later_arrivals_do_not_move_the_horizon(self, lane):
        """X11: they never belonged to another owner."""
        durable(lane, fence=True)
        for sequence in range(1, 13):
            lane.take_in(b"a", sequence, 99, b"", b"")
        lane.settle(9, lane.generation, 0)
        assert 6 == durable(lane).horizon

    def test_last_record_waits_for_running_handlers(self, lane):
        """X11: a running message may still kill its process."""
        durable(lane, fence=True)
        lane.stop([2])
        generation = lane.handoff.generation
        lane.settle(3, generation, 0)
        assert None is durable(lane)
        lane.settle(2, generation, 0)
        last = durable(lane)
        assert (6, True) == (last.horizon, last.clean)
        assert lane.log.closed
        assert None is durable(lane)

    def test_last_results_and_clean_end_share_a_record(self, lane):
        """D: the append that is due anyway is marked as clean."""
        durable(lane, fence=True)
        lane.settle(1, lane.generation, 0)
        lane.stop([])
        last = durable(lane)
        assert ([(1, 1)], True) == (unpack_runs(last.runs, 0), last.clean)

    def test_unstored_last_record_is_written_again(self, lane):
        """X11: the log is closed only once the clean end is stored."""
        durable(lane, fence=True)
        lane.stop([])
        lane.log.withdraw(lane.next_append(0))
        assert not lane.log.closed
        assert durable(lane).clean

    def test_last_record_waits_for_all_marks(self, lane):
        """X11: 1,199 marks don't fit one record."""
        durable(lane, fence=True)
        for sequence in range(1, 1_200):
            lane.log.mark_failed(sequence, 0, 0)
        lane.stop([])
        assert [False, True] == [durable(lane).clean, durable(lane).clean]

    def test_lane_without_fence_writes_no_clean_end(self, lane):
        """X11: the log's last record is another owner's, and stays the last."""
        lane.stop([])
        assert not lane.must_close
        assert not durable(lane).clean

    def test_abandoned_lane_writes_nothing(self, lane):
        """O: it has another owner by now."""
        durable(lane, fence=True)
        lane.abandon()
        assert None is durable(lane)
        assert not lane.log.closed

    def test_process_that_ends_with_running_handlers_ends_cleanly(self, lane):
        """X11, fault 4: these handlers didn't kill it."""
        durable(lane, fence=True)
        lane.stop([2])
        lane.drop_running()
        assert durable(lane).clean

    @pytest.mark.parametrize(("last", "horizon"), [(9, 6), (6, 6), (4, 4), (0, 0)])
    def test_stream_rollback_lowers_the_horizon(self, lane, last, horizon):
        """X11, E12: messages that get the lost sequences again were in flight at no crash."""
        lane.reset(LaneState("s", 1, last, 90))
        assert horizon == lane.horizon

    def test_log_of_another_stream_puts_all_messages_below_the_horizon(self):
        """X11, E12: nothing is known of the stream's last owner."""
        made = FedLane(LaneId("lanes", 3), EPOCH, MemoryBudget(), Host())
        other = LogState(epoch=5, created="another", clean=True, horizon=3)
        assert not made.recover(other, stream(), 99, horizon=3)
        assert 9 == made.horizon
