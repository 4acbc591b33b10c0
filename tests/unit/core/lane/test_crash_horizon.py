"""Which end was clean, and up to where messages may have been in flight (X11): the pure part of the crash horizon."""

import msgspec
import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.crash_horizon import ended_cleanly, horizon_of
from evenlane.engine.core.lane.settle_record import VERSION, LogState, Record, encode, fold
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from tests.support.lane_host import Host

EPOCH = 7  # of who takes over
NONE = LogState()


def stream(first=1, last=9):
    return LaneState("s", first, last, 99)


def clean_end(clean, epoch=5, **fields):
    return LogState(epoch=epoch, created="s", clean=clean, **fields)


@pytest.mark.parametrize(
    ("log", "state", "released", "clean"),
    [
        pytest.param(clean_end(True), stream(), (), True, id="the log's last record says so"),
        pytest.param(clean_end(False), stream(), (), False, id="it says otherwise"),
        pytest.param(clean_end(None), stream(), (), False, id="an older release has written it"),
        pytest.param(clean_end(False), stream(), {5}, True, id="a held key says so"),
        pytest.param(clean_end(None), stream(), {5}, True, id="a held key of an older release"),
        pytest.param(clean_end(False), stream(), {4, 6}, False, id="the key of another epoch"),
        pytest.param(clean_end(False, epoch=EPOCH), stream(), (), True, id="its own epoch: the take-over is repeated"),
        pytest.param(clean_end(True, unreadable=1), stream(), (), False, id="a record that cannot be read"),
        pytest.param(clean_end(True, epoch=EPOCH, unreadable=1), stream(), (), True, id="one beside its own"),
        pytest.param(LogState(unreadable=1), stream(), (), False, id="none that can be read"),
        pytest.param(NONE, stream(0, 0), (), True, id="no log: the stream is virgin"),
        pytest.param(NONE, stream(1, 9), (), True, id="no log: a backlog that nobody has owned"),
        pytest.param(NONE, stream(2, 9), (), False, id="the log was lost: messages have been removed"),
        pytest.param(NONE, stream(10, 9), (), False, id="the log was lost: all of them have"),
        pytest.param(NONE, stream(2, 9), {0}, False, id="no key speaks of a log that is lost"),
    ],
)
def test_an_end_is_clean_if_something_says_so(log, state, released, clean):
    """X11: absence of a word is a death."""
    assert clean is ended_cleanly(log, state, EPOCH, released)


@pytest.mark.parametrize(
    ("log", "state", "clean", "horizon"),
    [
        pytest.param(clean_end(False), stream(1, 9), False, 9, id="a death: the end of the stream"),
        pytest.param(clean_end(True), stream(1, 9), True, 0, id="a clean end: none"),
        pytest.param(clean_end(True, horizon=4), stream(1, 9), True, 4, id="a clean end hands on what was there"),
        pytest.param(clean_end(False, horizon=4), stream(1, 9), False, 9, id="two deaths: the later one's end"),
        pytest.param(
            clean_end(False, horizon=12), stream(1, 9), False, 12, id="two deaths: the higher one, if it was lost"
        ),
        pytest.param(clean_end(True, horizon=4), stream(4, 9), True, 4, id="its last message is there still"),
        pytest.param(clean_end(True, horizon=4), stream(5, 9), True, 0, id="all up to it has been removed"),
        pytest.param(clean_end(False), stream(10, 9), False, 0, id="an empty stream has none"),
        pytest.param(NONE, stream(0, 0), True, 0, id="a virgin one neither"),
        pytest.param(LogState(unreadable=1), stream(3, 9), False, 9, id="a log that cannot be read: all there is"),
    ],
)
def test_the_horizon(log, state, clean, horizon):
    """X11: it never shrinks before all below it has gone."""
    assert horizon == horizon_of(log, state, clean=clean)


# ---- what the log says of it


def record(number, **fields):
    return encode(Record(VERSION, 5, number, "s", 9, 99, 0, b"", **fields))


def test_the_last_record_that_can_be_read_counts():
    """X11: not the highest, nor the first."""
    log = fold([record(1, horizon=9, clean=False), record(2, horizon=4, clean=True), b"\xc1"])
    assert (4, True, 1) == (log.horizon, log.clean, log.unreadable)
    assert (0, False) == (fold([record(1, horizon=9, clean=True), record(2, clean=False)]).horizon, False)


def test_a_record_of_an_older_release():
    """Rolling upgrade: it has neither field, and is no word of a clean end."""
    old = [VERSION, 5, 1, "s", 9, 99, 0, b"", False, b""]

    log = fold([msgspec.msgpack.encode(old)])
    assert (5, 0, None) == (log.epoch, log.horizon, log.clean)


def test_an_older_release_reads_a_record_of_this_one():
    """Rolling upgrade, and back: it ignores both fields at the end."""

    class Old(msgspec.Struct, array_like=True, frozen=True):
        version: int
        epoch: int
        number: int
        created: str
        high: int
        high_at: int
        watermark: int
        runs: bytes
        checkpoint: bool = False
        marks: bytes = b""

    read = msgspec.msgpack.Decoder(Old).decode(record(3, horizon=9, clean=True))
    assert Old(VERSION, 5, 3, "s", 9, 99, 0, b"") == read


# ---- what a lane writes


@pytest.fixture
def lane():
    """One that holds 1 to 9, of which nothing is settled, behind the horizon 6; its fence isn't written yet."""
    made = FedLane(LaneId("lanes", 3), EPOCH, MemoryBudget(), Host())
    made.recover(clean_end(False), stream(), 99, horizon=6)
    return made


def durable(lane, *, fence=False):
    """The lane's next record, once the log has it."""
    append = lane.cut(0, fence=fence)
    if append is None:
        return None
    lane.log.acknowledged(append)
    return append.record


class TestWritten:
    def test_the_fence_is_the_first_to_say_the_horizon(self, lane):
        """X11: nothing starts before; so a death just then leaves nothing behind that nobody knows of."""
        fence = durable(lane, fence=True)
        assert (6, False, True) == (fence.horizon, fence.clean, fence.checkpoint)

    def test_and_so_does_one_that_is_too_large_for_a_checkpoint(self, lane):
        """X11: the short fence."""
        append = lane.cut(0, fence=True)
        lane.log.withdraw(append)
        lane.log.defer_checkpoint()
        fence = durable(lane, fence=True)
        assert (6, False, False) == (fence.horizon, fence.clean, fence.checkpoint)

    def test_and_each_one_after_it_until_the_watermark_has_reached_it(self, lane):
        """X11: then there is none any more."""
        durable(lane, fence=True)
        found = []
        for last in (3, 5, 6, 7):
            for sequence in range(max(lane.settled.watermark, 0) + 1, last + 1):
                lane.settle(sequence, lane.generation, 0)
            durable(lane)
            lane.settle(9, lane.generation, 0)  # so that there is something to say
            found.append(durable(lane).horizon)
        assert [6, 6, 0, 0] == found

    def test_what_arrives_late_does_not_move_it(self, lane):
        """X11: it is never another owner's."""
        durable(lane, fence=True)
        for sequence in range(1, 13):
            lane.take_in(b"a", sequence, 99, b"", b"")
        lane.settle(9, lane.generation, 0)
        assert 6 == durable(lane).horizon

    def test_clean_only_when_nothing_runs(self, lane):
        """X11: else its process may still die of it."""
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

    def test_what_ends_before_it_is_told_goes_into_the_same_record(self, lane):
        """D: the append that is due anyway says that the end was clean."""
        durable(lane, fence=True)
        lane.settle(1, lane.generation, 0)
        lane.stop([])
        last = durable(lane)
        assert ([(1, 1)], True) == (settle_record.unpack(last.runs, 0), last.clean)

    def test_one_that_does_not_reach_the_log_closes_nothing(self, lane):
        """X11: it is said again."""
        durable(lane, fence=True)
        lane.stop([])
        lane.log.withdraw(lane.cut(0))
        assert not lane.log.closed
        assert durable(lane).clean

    def test_clean_only_when_all_marks_are_told(self, lane):
        """X11: so many of them don't fit one record."""
        durable(lane, fence=True)
        for sequence in range(1, 1_200):
            lane.log.mark_failed(sequence, 0, 0)
        lane.stop([])
        assert [False, True] == [durable(lane).clean, durable(lane).clean]

    def test_never_before_the_fence(self, lane):
        """X11: the log's last word is another owner's, and stands."""
        lane.stop([])
        assert not lane.to_close
        assert not durable(lane).clean

    def test_nor_of_one_that_is_given_up(self, lane):
        """O: it is another's by now."""
        durable(lane, fence=True)
        lane.abandon()
        assert None is durable(lane)
        assert not lane.log.closed

    def test_what_a_process_leaves_running_as_it_ends_has_killed_nothing(self, lane):
        """X11, fault 4."""
        durable(lane, fence=True)
        lane.stop([2])
        lane.left()
        assert durable(lane).clean

    @pytest.mark.parametrize(("last", "horizon"), [(9, 6), (6, 6), (4, 4), (0, 0)])
    def test_a_stream_that_is_rolled_back_takes_it_along(self, lane, last, horizon):
        """X11, E12: what gets those sequences anew was in flight at no death."""
        lane.reset(LaneState("s", 1, last, 90))
        assert horizon == lane.horizon

    def test_a_log_that_speaks_of_another_stream(self):
        """X11, E12: nothing is known of its last owner."""
        made = FedLane(LaneId("lanes", 3), EPOCH, MemoryBudget(), Host())
        other = LogState(epoch=5, created="another", clean=True, horizon=3)
        assert not made.recover(other, stream(), 99, horizon=3)
        assert 9 == made.horizon
