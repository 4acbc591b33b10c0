"""A lane under one owner after another: settling, purging, and handing out again, against plain sets."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.queue import clear
from evenlane.engine.core.queue.entry import MemoryBudget
from tests.support.lane_owner import Owner, Stream

SUBJECTS = [b"a", b"b", b"c"]
subjects = st.sampled_from(SUBJECTS)
few = st.integers(1, 6)


class Lanes(RuleBasedStateMachine):
    """The oracle: plain sets of the messages that were handled and logged.

    Messages in `durable` must never be handed out again; those in `in_log` are settled for the next owner.
    """

    @initialize(read_ahead=st.integers(1, 4), index=st.integers(1, 6), payload=st.sampled_from([4, 1 << 20]))
    def begin(self, read_ahead, index, payload):
        self.limits = MemoryBudget(payload_bytes=payload, read_ahead=read_ahead, index=index)
        self.stream, self.log, self.epoch = Stream(), [], 0
        self.durable, self.in_log, self.handled = set(), set(), set()
        self._take_over()

    def _take_over(self):
        self.epoch += 1
        self.limits.used_bytes = 0
        self.owner = Owner(self.stream, self.log, self.epoch, self.limits)
        self.durable = set(self.in_log) if self.owner.knew else set()
        self.handled = set(self.durable)
        self._forget()

    def _forget(self):
        self.in_flight, self.handed, self.last_of = [], set(), {}
        self.sending, self.erasing, self.base = None, None, set()

    @property
    def lane(self):
        return self.owner.lane

    # ---- the world

    @rule(subject=subjects, count=few)
    def put(self, subject, count):
        for _ in range(count):
            self.stream.put(subject)

    @precondition(lambda self: self.stream.held)
    @rule(which=st.integers(0, 1000))
    def delete_a_message(self, which):
        held = sorted(self.stream.held)
        del self.stream.held[held[which % len(held)]]

    @rule()
    def replace_the_stream(self):
        self.stream.replace()
        self._verify(same=self.lane.high == 0 and self.lane.created == self.stream.created)

    @precondition(lambda self: self.stream.last)
    @rule(to=st.integers(0, 100), more=st.integers(0, 8), subject=subjects)
    def roll_back_the_stream(self, to, more, subject):
        """Roll back, after which the stream may have grown above its old end."""
        to = max(to % self.stream.last, self.stream.purged)
        lost = to < self.lane.high
        self.stream.roll_back(to)
        self.put(subject, more)
        self._verify(same=not lost)

    def _verify(self, same):
        state = self.stream.state()
        assert same == self.lane.is_same(state, self.stream.time_of(self.lane.high))
        if not same:
            old = self.lane.generation
            self.lane.reset(state)
            for sequence, _ in self.in_flight:
                assert not self.lane.settle(sequence, old, 0), "a result of the old generation counted"
            self.durable, self.handled = set(), set()
            self.owner.catch_up_to = None
            sending = self.sending
            self._forget()
            self.sending = sending

    @rule()
    def confirm_the_identity(self):
        self._verify(same=True)

    # ---- the owner

    @rule(count=few, headless=st.booleans())
    def feed(self, count, headless):
        while count and self.owner.feed(headless=headless):
            count -= 1

    @rule(count=few, headless=st.booleans())
    def feed_the_tail(self, count, headless):
        while count and self.owner.feed_tail(headless=headless):
            count -= 1

    @rule(subject=subjects, count=few, fails=st.booleans())
    def read(self, subject, count, fails):
        if subject in self.owner.queues:
            self.owner.read(subject, count, fails=fails)

    @rule(subject=subjects, count=few)
    def take(self, subject, count):
        queue = self.owner.queues.get(subject)
        while queue is not None and queue.ready and count:
            count -= 1
            _, sequence, _, _, body, *_ = queue.take(self.limits)
            assert sequence not in self.durable, "a settled message was handed out again"
            assert sequence not in self.handed, "a message was handed out twice by one owner"
            assert self.last_of.get(subject, 0) < sequence, "out of order"
            assert b"%d" % sequence == body
            self.handed.add(sequence)
            self.last_of[subject] = sequence
            self.in_flight.append((sequence, self.lane.generation))

    @rule(subject=subjects)
    def unload(self, subject):
        if subject in self.owner.queues:
            clear.unload(self.owner.queues[subject], self.limits)

    @precondition(lambda self: self.in_flight)
    @rule(which=st.lists(st.integers(0, 1000), min_size=1, max_size=6))
    def settle(self, which):
        for each in which:
            if self.in_flight:
                sequence, generation = self.in_flight.pop(each % len(self.in_flight))
                assert self.lane.settle(sequence, generation, 0)
                self.handled.add(sequence)

    @precondition(lambda self: self.sending is None)
    @rule()
    def cut(self):
        self.sending, self.cut_in = self.lane.next_append(0), self.lane.generation
        self.base = set(self.durable)

    @precondition(lambda self: self.sending is not None)
    @rule(outcome=st.sampled_from(["acked", "stored", "lost"]))
    def end_the_append(self, outcome):
        append, self.sending = self.sending, None
        if outcome != "lost":
            self._store(append)
        if outcome == "acked":
            self.lane.log.on_append(append)
        else:
            self.owner.learn(append)

    def _store(self, append):
        self.owner.store(append)
        self.in_log = (self.base if append.record.checkpoint else self.in_log) | set(append.sequences)
        if self.cut_in == self.lane.generation:
            self.durable |= set(append.sequences)

    @rule()
    def make_a_checkpoint_due(self):
        self.lane.log.checkpoint_due = True

    @rule()
    def purge(self):
        self.stream.purge(self.lane.removal.durable_watermark)
        self.lane.removal.note_purged(max(self.lane.removal.purged, self.lane.removal.durable_watermark))

    @precondition(lambda self: self.erasing is None)
    @rule(count=few)
    def begin_to_erase(self, count):
        self.erasing = (self.lane.removal.choose_erasable(count), self.lane.generation)
        for sequence in self.erasing[0]:
            assert sequence in self.durable or sequence not in self.stream.held
            self.stream.held.pop(sequence, None)

    @precondition(lambda self: self.erasing)
    @rule()
    def erased(self):
        (sequences, generation), self.erasing = self.erasing, None
        if sequences and generation == self.lane.generation:
            self.lane.removal.note_erased(sequences)

    @rule(tail=st.booleans(), stored=st.booleans())
    def crash(self, tail, stored):
        if self.sending is not None and stored:
            self._store(self.sending)
        again = {s for s in self.handled - self.durable if s in self.stream.held}
        assert len(again) <= self.lane.log.unsynced_count, "D: more would be handled twice than awaits the log"
        self._take_over()
        if tail:
            self.owner.begin_with_a_tail()

    # ---- invariants

    @invariant()
    def purge_spares_unsettled_messages(self):
        watermark = self.lane.removal.durable_watermark
        assert {s for s in self.stream.held if s <= watermark} <= self.durable

    @invariant()
    def purge_never_passes_the_feed(self):
        assert self.lane.removal.durable_watermark <= max(self.lane.fed_to, self.lane.recovered)

    @invariant()
    def log_has_durable_messages(self):
        if not self.log or fold(self.log).created != self.stream.created:
            return
        settled = fold(self.log).settled
        assert {s for s in self.durable if s in self.stream.held and s not in settled} == set()

    @invariant()
    def memory_accounts_match(self):
        for queue in self.owner.queues.values():
            assert queue.ready_bytes == sum(len(entry[4]) for entry in queue.ready)
        assert self.limits.used_bytes == sum(queue.ready_bytes for queue in self.owner.queues.values())

    def teardown(self):
        """In the end all messages put have been handed out and can be purged."""
        if not hasattr(self, "owner"):
            return
        self.stream.put(b"a")  # so that the feed shows the deletions before it
        self._finish()
        while self.owner.feed() or self.owner.feed_tail():
            pass
        before = None
        while before != (before := [queue.backlog for queue in self.owner.queues.values()] + [len(self.handled)]):
            for subject in list(self.owner.queues):
                self.owner.read(subject, 50)
                self.take(subject, 10_000)
            self.settle([0] * len(self.in_flight))
            self._finish()
        missing = set(self.stream.held) - self.handled - self.durable
        assert missing == set(), "these were never handed out"
        self._finish()
        while self.owner.probe():
            self._finish()
        self.purge()
        assert (self.stream.last, {}) == (self.lane.removal.durable_watermark, self.stream.held)

    def _finish(self):
        for _ in range(2):
            if self.sending is None:
                self.cut()
            if self.sending is not None:
                self.end_the_append("acked")


TestLanes = Lanes.TestCase
TestLanes.settings = settings(max_examples=100, stateful_step_count=40)
