"""E11: positions of a lane and its queues under one owner after another, against a plain list of events."""

import random

import pytest

from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.positions import locate_lane, locate_queue
from evenlane.engine.core.queue.requeue import requeue
from tests.support.lane_owner import Owner, Stream

SUBJECTS = [b"a", b"b", b"c"]
SEEDS, STEPS = 60, 120


class History:
    """A random history. The oracle: `put` has each message with its subject, `ended` those that have ended under the
    present owner or durably, `taken` those that were taken from their queue and haven't ended. `claimed` has, by
    subject, the highest `settled` that an owner has reported; `claims` those to be reported once a record is durable.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.limits = MemoryBudget(read_ahead=self._few(4), index=self._few())
        self.stream, self.log, self.epoch = Stream(), [], 0
        self.put, self.ended = {}, set()
        self.claimed, self.claimed_of_lane = dict.fromkeys(SUBJECTS, 0), (0, 0)
        self._take_over([])

    def _few(self, most=6):
        return self.random.randint(1, most)

    def step(self):
        often = [self.arrive, self.feed, self.feed, self.take, self.take, self.end_an_attempt, self.end_an_attempt]
        steps = [*often, *often, self.read, self.read, self.read_ahead, self.end_a_held_message, self.cut, self.ask]
        self.random.choice([*steps, self.end_the_append, self.end_the_append, self.remove, self.change_the_owner])()
        self.check_queues()
        self.check_lane()

    def _take_over(self, held):
        self.epoch += 1
        self.limits.used_bytes = 0
        self.owner = Owner(self.stream, self.log, self.epoch, self.limits)
        logged = fold(self.log).settled
        self.ended = {s for s in self.put if s in logged or s not in self.stream.held}
        self.taken, self.held, self.sending, self.claims = [], [s for s in held if s not in self.ended], None, []
        assert None is locate_lane(self.lane), "nothing is known before the fence"
        append = self.lane.next_append(0, fence=True)
        self.owner.store(append)
        self.lane.log.on_append(append)
        self.lane.hold(self.epoch - 1, self.held)

    @property
    def lane(self):
        return self.owner.lane

    # ---- events

    def arrive(self, subject=None):
        for _ in range(self._few()):
            self.stream.put(subject or self.random.choice(SUBJECTS))
            self.put[self.stream.last] = self.stream.held[self.stream.last][0]

    def feed(self):
        step = self.random.choice([self.owner.feed, self.owner.feed, self.owner.feed_tail])
        for _ in range(self._few()):
            step(headless=self.random.random() < 0.2)

    def read(self):
        if self.owner.queues:
            self.owner.read(self.random.choice(sorted(self.owner.queues)), self._few())

    def read_ahead(self):
        self.owner.read_ahead(self.random.choice(SUBJECTS), self._few())

    def take(self):
        for queue in self.owner.queues.values():
            if queue.ready:
                self.taken.append(queue.take(self.limits))

    def end_an_attempt(self):
        """The message is handled; or its attempt failed, and it rests; or it wasn't started, and goes back."""
        if not self.taken:
            return
        entry = self.taken.pop(self.random.randrange(len(self.taken)))
        how = self.random.random()
        if how < 0.6:
            self._settle(entry[1])
        elif how < 0.8:
            self.owner.queues[self.put[entry[1]]].requeue(entry, self.limits)
        else:
            self.lane.log.mark_failed(entry[1], 10**9, 0)
            self.taken.append(entry)

    def end_a_held_message(self):
        """The previous owner has ended the message, or gives it back."""
        if not self.held:
            return
        sequence = self.held.pop(self.random.randrange(len(self.held)))
        if self.random.random() < 0.5:
            self._settle(sequence)
        else:
            requeue(self.lane, [sequence], 0)

    def _settle(self, sequence):
        assert self.lane.settle(sequence, self.lane.generation, 0)
        self.ended.add(sequence)

    def cut(self):
        if self.sending is None:
            self.lane.log.checkpoint_due = self.lane.log.checkpoint_due or self.random.random() < 0.2
            self.sending = self.lane.next_append(0)

    def end_the_append(self, outcome=""):
        if self.sending is None:
            return
        append, self.sending = self.sending, None
        outcome = outcome or self.random.choice(["acked", "acked", "stored", "lost"])
        if outcome != "lost":
            self.owner.store(append)
        if outcome == "acked":
            self.lane.log.on_append(append)
        else:
            self.owner.learn(append)
        self._report()

    def remove(self):
        """Remove settled messages: by a purge, or one by one above a pinned watermark."""
        removal = self.lane.removal
        if self.random.random() < 0.5:
            self.stream.purge(removal.durable_watermark)
            removal.note_purged(removal.durable_watermark)
        elif sequences := removal.choose_erasable(self._few()):
            for sequence in sequences:
                self.stream.held.pop(sequence, None)
            removal.note_erased(sequences)

    def change_the_owner(self):
        """By a crash, or by a handoff during which taken messages go on."""
        if self.sending is not None and self.random.random() < 0.5:
            self.owner.store(self.sending)
        self._take_over([entry[1] for entry in self.taken] if self.random.random() < 0.7 else [])
        if self.random.random() < 0.5:
            self.owner.begin_with_a_tail()

    # ---- reports

    def _locate(self, subject):
        if (queue := self.owner.queues.get(subject)) is None:
            return None
        return locate_queue(queue, self.lane, subject, [e[1] for e in self.taken if self.put[e[1]] == subject])

    def ask(self):
        """Ask for all queues; the answer goes out once all that has ended by now is durable."""
        if not self.lane.log.unsynced_count:
            assert self.lane.log.covering_number == self.lane.log.durable_number, "there is nothing to wait for"
        for subject in SUBJECTS:
            if (at := self._locate(subject)) is not None:
                self.claims.append((subject, at.head - 1, self.lane.log.covering_number))
        self._report()

    def _report(self):
        known = fold(self.log).settled
        durable = self.lane.log.durable_number
        for subject, settled, _ in [claim for claim in self.claims if claim[2] <= durable]:
            unsettled = {s for s in self.stream.held if s <= settled and self.put[s] == subject and s not in known}
            assert set() == unsettled, "settled, and not in the log"
            self.claimed[subject] = max(self.claimed[subject], settled)
        self.claims = [claim for claim in self.claims if claim[2] > durable]

    # ---- invariants

    def check_queues(self):
        for subject in SUBJECTS:
            if (at := self._locate(subject)) is None:
                continue
            fed_to = self.lane.fed_to
            unended = [s for s, its in self.put.items() if its == subject and s <= fed_to and s not in self.ended]
            taken = {*self.held, *(entry[1] for entry in self.taken)}
            first_waiting = next((s for s in unended if s not in taken), None)
            assert self.claimed[subject] < at.head <= at.end + 1, "what was settled isn't any more"
            if self.owner.queues[subject].spilled:  # its messages are known by their number only
                assert at.head <= (unended or [fed_to])[0]
                assert max(unended, default=0) <= at.end == fed_to
                assert first_waiting is None or at.next <= first_waiting
                assert not any(s < at.head for s in unended)
            else:
                expected = (unended[0], first_waiting, unended[-1]) if unended else (fed_to + 1, None, fed_to)
                assert expected == at

    def check_lane(self):
        if (at := locate_lane(self.lane)) is None:
            return
        settled, end = self.claimed_of_lane
        known = fold(self.log).settled
        assert max(settled, at.purged) <= at.settled <= at.end
        assert max(end, self.lane.fed_to) == at.end <= self.stream.last
        assert set() == {s for s in self.stream.held if s <= at.settled and s not in known}
        self.claimed_of_lane = at.settled, at.end

    def finish(self):
        """Handle everything: then both positions are at the end."""
        self.arrive(b"a")  # so that the feed shows the removals before it
        for sequence in self.held:
            self._settle(sequence)
        self.held = []
        while self.owner.feed() or self.owner.feed_tail():
            pass
        while any(queue.backlog for queue in self.owner.queues.values()) or self.taken:
            for subject, queue in self.owner.queues.items():
                self.owner.read(subject, 50)
                while queue.ready:
                    self.taken.append(queue.take(self.limits))
            for entry in self.taken:
                self._settle(entry[1])
            self.taken = []
        for _ in range(2):
            self.cut()
            self.end_the_append("acked")
        last = self.stream.last
        assert (last, last) == locate_lane(self.lane)[:2]
        assert self.lane.log.covering_number == self.lane.log.durable_number
        assert {(last + 1, None, last)} == {self._locate(subject) for subject in self.owner.queues}
        self.check_queues()


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_positions_follow_the_events_over_any_number_of_owners(first):
    """E11: progress is known, survives a crash, and moves with the queue."""
    for seed in range(first, first + 10):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
        history.finish()


def test_message_that_is_being_read_waits():
    """E11."""
    stream = Stream()
    stream.put(b"a")
    owner = Owner(stream, [], 1, MemoryBudget(read_ahead=1, index=6))
    owner.lane.log.on_append(owner.lane.next_append(0, fence=True))
    assert owner.feed(headless=True)
    owner.queues[b"a"].next_to_read(1)
    assert (1, 1, 1) == locate_queue(owner.queues[b"a"], owner.lane, b"a", [])
