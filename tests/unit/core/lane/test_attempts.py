"""What is known of single messages beside their stream: attempts without a copy, suspicion; kept by the settle log."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.attempts import (
    CONFIRMED,
    SUSPECT,
    AttemptMarks,
    attempts,
    due,
    held_under,
    one_less,
    own,
)
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from tests.support.lane_host import Host

SECOND = 1_000_000_000
sequences = st.integers(1, 12)
times = st.integers(0, 4_102_444_800 * SECOND)  # up to 2100
epochs = st.integers(1, 1 << 62)


@dataclass
class Known:
    """The oracle: of one message, in plain words."""

    attempts: int = 0
    again_at: int = 0
    suspect: bool = False
    confirmed: bool = False
    epoch: int = 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("held"), sequences, epochs),
        st.tuples(st.just("let go"), sequences, st.none()),
        st.tuples(st.just("failed"), sequences, times),
        st.tuples(st.just("died"), sequences, st.tuples(st.booleans(), st.booleans())),
        st.tuples(st.just("cleared"), sequences, st.none()),
        st.tuples(st.just("settled"), sequences, st.none()),
    ),
    max_size=40,
)


def step(state, oracle, what, sequence, value):
    """The same on both."""
    known = oracle.setdefault(sequence, Known())
    if what == "failed":
        state.failed(sequence, value)
        oracle[sequence] = Known(known.attempts + 1, value)
    elif what == "died":
        counts, confirmed = value
        state.died(sequence, counts=counts, confirmed=confirmed)
        known.suspect, known.epoch = True, 0
        known.confirmed = known.confirmed or confirmed
        if counts:
            known.attempts += 1
            known.again_at = 0  # whoever was in flight was due
    elif what == "held":
        state.hold(sequence, value)
        known.epoch = value
    elif what == "let go":
        state.release(sequence)
        known.epoch = 0
    elif what == "cleared":
        state.cleared(sequence)
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
        assert known.epoch == held_under(mark)
        assert own(mark) < 1 << 54


@given(steps)
def test_a_mark_says_what_happened(steps):
    """X11, K2: attempts, the time of the next, suspicion, in any order of events."""
    state, oracle = AttemptMarks(), {}
    for each in steps:
        step(state, oracle, *each)
        agrees(state.of, oracle)


@given(steps, st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=40))
def test_the_log_hears_of_all_of_it(steps, reports):
    """D: records told one after the other, each of a few, say what is known; one that is lost is told again; 0 stands
    for none.
    """
    state, oracle, log = AttemptMarks(), {}, {}
    for number, each in enumerate(steps):
        step(state, oracle, *each)
        if each[0] == "settled":
            log.pop(each[1], None)  # the log says so by its runs
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
def test_attempts_stop_counting_before_they_spoil_the_rest(count, flags):
    """X11: a message with thousands of attempts is one with thousands of attempts, and due when it was."""
    state = AttemptMarks({1: flags})
    for _ in range(count):
        state.died(1, counts=True, confirmed=False)
    mark = state.of[1]
    assert min(count, 4_095) == attempts(mark)
    assert 0 == due(mark)
    assert SUSPECT == mark & SUSPECT
    assert flags & CONFIRMED == mark & CONFIRMED
    assert attempts(mark) - 1 == attempts(one_less(mark))


# ---- as a lane keeps them


class Life:
    """A lane under one epoch after the other, its log, and what it was told: `safe` is what the log has heard."""

    def __init__(self, kind):
        self.id, self.epoch, self.log = LaneId(kind, 1), 0, []
        self.state = LaneState("s", 1, 12, 12)
        self.next_epoch()

    def next_epoch(self):
        self.epoch += 1
        self.lane = FedLane(self.id, self.epoch, MemoryBudget(), Host(lambda *_: Queue("q", 0, "mid", 1, 1)))
        assert self.lane.recover(settle_record.fold(self.log), self.state, 12)
        self.cut("acked", fence=True)

    def cut(self, end, *, fence=False):
        append = self.lane.cut(0, fence=fence)
        if append is None:
            return
        if end != "lost":
            if append.record.checkpoint:
                self.log.clear()
            self.log.append(settle_record.encode(append.record))
        if end == "acked":
            self.lane.log.acknowledged(append)
        else:  # a resend that was stored before says the same once more
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
def test_marks_survive_whatever_becomes_of_the_records(kind, acts):
    """D, E11, X11: after a crash the next owner knows what a record said that was stored, acknowledged or not, with
    checkpoints at any time; and nothing of messages that have ended.
    """
    life, settled = Life(kind), set()
    for what, which, value in acts:
        lane = life.lane
        if what == "failed" and which not in settled:
            lane.log.mark_failed(which, value, 0)
        elif what == "died" and which not in settled:
            lane.marks.died(which, counts=value[0], confirmed=value[1])
        elif what == "cleared" and which not in settled:
            lane.log.mark_cleared(which, 0)
        elif what == "settled" and which not in settled:
            settled.add(which)
            lane.settle(which, lane.generation, 0)
        elif what == "cut":
            lane.log.checkpoint_due = lane.log.checkpoint_due or value
            life.cut(which)
        elif what == "crash":
            before = settle_record.fold(life.log)
            life.next_epoch()
            settled = {s for s in range(1, 13) if s in before.settled}
            assert before.marks == life.lane.marks.of
    life.cut("acked")
    expected = {s: mark for s, mark in life.lane.marks.of.items() if s not in settled}
    assert expected == settle_record.fold(life.log).marks
    assert not settled & life.lane.marks.of.keys()
    assert 0 == life.lane.log.unsynced_count


@given(st.lists(st.tuples(sequences, epochs), min_size=1, max_size=5))
def test_who_holds_something_is_not_told_on(held):
    """X11: a lane that is handed over before its fence is sure tells what it knows, but not what others hold."""
    life = Life("lanes")
    for sequence, epoch in held:
        life.lane.hold(epoch, [sequence])
        life.lane.log.mark_failed(1, 0, 0)
    assert life.lane.cut(0) is not None
    life.lane.stop([])
    life.lane.cut_off()
    assert {sequence for sequence, _ in held} | {1} == {sequence for sequence, _ in life.lane.handoff.failed}
    assert all(mark < 1 << 54 for _, mark in life.lane.handoff.failed)


def test_a_former_owners_older_word_does_not_end_a_suspicion():
    """X11: a held key may say what stood before its holder died; with as many attempts it isn't the newer word."""
    marks = AttemptMarks()
    marks.hold(1, 7)
    marks.died(1, counts=False, confirmed=False)
    marks.merge(1, 0)
    assert SUSPECT == marks.of[1]
    marks.failed(1, 0)
    newer = marks.of[1]
    marks.died(1, counts=False, confirmed=False)
    marks.merge(1, newer)
    assert marks.of[1] & SUSPECT


def test_a_former_owners_newer_word_counts():
    """X11, E13: an attempt that it has seen fail ends the suspicion."""
    marks, theirs = AttemptMarks(), AttemptMarks()
    marks.died(1, counts=False, confirmed=False)
    theirs.failed(1, 0)
    marks.merge(1, theirs.of[1])
    assert (1, 0) == (attempts(marks.of[1]), marks.of[1] & SUSPECT)
