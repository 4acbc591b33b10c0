"""Attempt marks: the attempts and suspicions of single messages that only the settle log keeps."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.attempts import (
    CONFIRMED,
    SUSPECT,
    AttemptMarks,
    attempts,
    due,
    holder_of,
    one_less,
    own,
)
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.records import settle_record
from tests.support.lane_host import Host

SECOND = 1_000_000_000
sequences = st.integers(1, 12)
times = st.integers(0, 4_102_444_800 * SECOND)  # up to 2100
epochs = st.integers(1, 1 << 62)


@dataclass
class Known:
    """The oracle: the state of one message in plain fields."""

    attempts: int = 0
    again_at: int = 0
    suspect: bool = False
    confirmed: bool = False
    epoch: int = 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("held"), sequences, epochs),
        st.tuples(st.just("released"), sequences, st.none()),
        st.tuples(st.just("failed"), sequences, times),
        st.tuples(st.just("died"), sequences, st.tuples(st.booleans(), st.booleans())),
        st.tuples(st.just("cleared"), sequences, st.none()),
        st.tuples(st.just("settled"), sequences, st.none()),
    ),
    max_size=40,
)


def step(state, oracle, what, sequence, value):
    """Apply one step to the marks and to the oracle."""
    known = oracle.setdefault(sequence, Known())
    if what == "failed":
        state.mark_failed(sequence, value)
        oracle[sequence] = Known(known.attempts + 1, value)
    elif what == "died":
        counts, confirmed = value
        state.mark_died(sequence, counts=counts, confirmed=confirmed)
        known.suspect, known.epoch = True, 0
        known.confirmed = known.confirmed or confirmed
        if counts:
            known.attempts += 1
            known.again_at = 0  # a message in flight was due
    elif what == "held":
        state.hold(sequence, value)
        known.epoch = value
    elif what == "released":
        state.release(sequence)
        known.epoch = 0
    elif what == "cleared":
        state.mark_cleared(sequence)
        known.suspect = known.confirmed = False
    else:
        state.drop([sequence])
        oracle.pop(sequence)


def agrees(marks, oracle):
    for sequence in range(1, 13):
        mark, known = marks.get(sequence, 0), oracle.get(sequence, Known())
        assert known.attempts == attempts(mark)
        assert (known.suspect, known.confirmed) == (bool(mark & SUSPECT), bool(mark & CONFIRMED))
        assert known.again_at <= due(mark) < known.again_at + SECOND, "never sooner, and no second later"
        assert known.epoch == holder_of(mark)
        assert own(mark) < 1 << 54


@given(steps)
def test_mark_records_every_event(steps):
    """X11, K2: attempts, the next attempt's due time and suspicion, in any order of events."""
    state, oracle = AttemptMarks(), {}
    for each in steps:
        step(state, oracle, *each)
        agrees(state.of, oracle)


@given(steps, st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=40))
def test_log_receives_every_change(steps, reports):
    """D: records written one after another, a few marks each, hold all marks; a lost record's marks are written again,
    and 0 clears a mark.
    """
    state, oracle, log = AttemptMarks(), {}, {}
    for number, each in enumerate(steps):
        step(state, oracle, *each)
        if each[0] == "settled":
            log.pop(each[1], None)  # the log's runs end the mark
        if number < len(reports):
            lost, most = reports[number]
            reported = state.take_unsynced(most)
            assert sorted(set(reported)) == reported
            assert len(reported) <= most
            if lost:
                state.unsynced.update(reported)
            else:
                log |= dict(state.pairs(reported))
    while reported := state.take_unsynced(2):
        log |= dict(state.pairs(reported))
    agrees(log, oracle)


@given(st.integers(1, 5_000), st.integers(0, 3))
def test_attempt_count_saturates_without_touching_other_bits(count, flags):
    """X11: thousands of attempts neither reset the count nor change the due time or the flags."""
    state = AttemptMarks({1: flags})
    for _ in range(count):
        state.mark_died(1, counts=True, confirmed=False)
    mark = state.of[1]
    assert min(count, 4_095) == attempts(mark)
    assert 0 == due(mark)
    assert SUSPECT == mark & SUSPECT
    assert flags & CONFIRMED == mark & CONFIRMED
    assert attempts(mark) - 1 == attempts(one_less(mark))


# ---- in a lane and its log


class LaneHistory:
    """A lane under one epoch after another, and its log."""

    def __init__(self, kind):
        self.id, self.epoch, self.log = LaneId(kind, 1), 0, []
        self.state = LaneState("s", 1, 12, 12)
        self.next_epoch()

    def next_epoch(self):
        self.epoch += 1
        self.lane = FedLane(self.id, self.epoch, MemoryBudget(), Host(lambda *_: Queue("q", 0, "mid", 1, 1)))
        assert self.lane.recover(fold(self.log), self.state, 12)
        self.cut("acked", fence=True)

    def cut(self, end, *, fence=False):
        append = self.lane.next_append(0, fence=fence)
        if append is None:
            return
        if end != "lost":
            if append.record.checkpoint:
                self.log.clear()
            self.log.append(settle_record.encode(append.record))
        if end == "acked":
            self.lane.log.on_append(append)
        else:  # the next record repeats one that was stored without an acknowledgement
            self.lane.log.withdraw(append)


acts = st.lists(
    st.one_of(
        st.tuples(st.just("failed"), sequences, times),
        st.tuples(st.just("died"), sequences, st.tuples(st.booleans(), st.booleans())),
        st.tuples(st.just("cleared"), sequences, st.none()),
        st.tuples(st.just("settled"), sequences, st.none()),
        st.tuples(st.just("cut"), st.sampled_from(["acked", "acked", "stored", "lost"]), st.booleans()),
        st.tuples(st.just("crash"), st.none(), st.none()),
    ),
    max_size=60,
)


@given(st.sampled_from(["lanes", "later"]), acts)
def test_marks_survive_lost_and_unacknowledged_records(kind, acts):
    """D, E11, X11: after a crash the next owner has the marks of all stored records, acknowledged or not, with
    checkpoints at any time, and no mark of a settled message.
    """
    history, settled = LaneHistory(kind), set()
    for what, which, value in acts:
        lane = history.lane
        if what == "failed" and which not in settled:
            lane.log.mark_failed(which, value, 0)
        elif what == "died" and which not in settled:
            lane.marks.mark_died(which, counts=value[0], confirmed=value[1])
        elif what == "cleared" and which not in settled:
            lane.log.mark_cleared(which, 0)
        elif what == "settled" and which not in settled:
            settled.add(which)
            lane.settle(which, lane.generation, 0)
        elif what == "cut":
            lane.log.checkpoint_due = lane.log.checkpoint_due or value
            history.cut(which)
        elif what == "crash":
            before = fold(history.log)
            history.next_epoch()
            settled = {s for s in range(1, 13) if s in before.settled}
            assert before.marks == history.lane.marks.of
    history.cut("acked")
    expected = {s: mark for s, mark in history.lane.marks.of.items() if s not in settled}
    assert expected == fold(history.log).marks
    assert not settled & history.lane.marks.of.keys()
    assert 0 == history.lane.log.unsynced_count


@given(st.lists(st.tuples(sequences, epochs), min_size=1, max_size=5))
def test_handoff_passes_marks_without_holders(held):
    """X11: a lane handed off before its fence is stored passes on its marks, but not the epochs of other holders."""
    history = LaneHistory("lanes")
    for sequence, epoch in held:
        history.lane.hold(epoch, [sequence])
        history.lane.log.mark_failed(1, 0, 0)
    assert history.lane.next_append(0) is not None
    history.lane.stop([])
    history.lane.cut_off()
    assert {sequence for sequence, _ in held} | {1} == {sequence for sequence, _ in history.lane.handoff.failed}
    assert all(mark < 1 << 54 for _, mark in history.lane.handoff.failed)


def test_older_mark_of_previous_owner_keeps_suspicion():
    """X11: a held key may be older than its holder's death; with an equal number of attempts its mark isn't newer."""
    marks = AttemptMarks()
    marks.hold(1, 7)
    marks.mark_died(1, counts=False, confirmed=False)
    marks.merge(1, 0)
    assert SUSPECT == marks.of[1]
    marks.mark_failed(1, 0)
    newer = marks.of[1]
    marks.mark_died(1, counts=False, confirmed=False)
    marks.merge(1, newer)
    assert marks.of[1] & SUSPECT


def test_newer_mark_of_previous_owner_ends_suspicion():
    """X11, E13: one more failed attempt ends the suspicion."""
    marks, previous = AttemptMarks(), AttemptMarks()
    marks.mark_died(1, counts=False, confirmed=False)
    previous.mark_failed(1, 0)
    marks.merge(1, previous.of[1])
    assert (1, 0) == (attempts(marks.of[1]), marks.of[1] & SUSPECT)
