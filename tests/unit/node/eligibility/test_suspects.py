"""Which recorded messages may start (X11), each rule alone: no node, no store."""

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.node.eligibility.suspects import Suspects, Verdict
from tests.support.node.world import SECOND
from tests.support.until import until

START, WAIT, STAY = Verdict
MOST_ASIDE = 1_024


class Lane:
    generation = 0


class Queue:
    """Compared by identity, as queues are."""

    def __init__(self, ack_wait=0):
        self.ack_wait = ack_wait


class Bench:
    """`in_flight` and `failing` are what a gate says, `now` what the caller says; `back` and `resumed` came back."""

    def __init__(self):
        self.in_flight = self.failing = False
        self.back, self.resumed = [], []
        self.lane, self.queue, self.now = Lane(), Queue(), 0
        self.suspended = {}
        self.suspects = Suspects(self, self, self.again)

    @property
    def busy(self):
        return self.in_flight

    def suspend(self, queue):
        self.suspended[queue] = None

    def resume_all(self):
        self.resumed += self.suspended
        self.suspended.clear()

    def again(self, queue, place, generation):
        assert queue is self.queue
        assert generation == place.lane.generation
        self.back.append(place.sequence)

    def place(self, sequence):
        return MessageRef(self.lane, sequence)

    def ask(self, sequence, *, suspect=False, last=False):
        return self.suspects.may_start(
            self.queue, self.place(sequence), suspect=suspect or last, last=last, now=self.now
        )

    def ended(self, sequence):
        self.suspects.ended(self.place(sequence))

    def aside(self):
        return [place.sequence for place in self.suspects.of(self.queue)]


@pytest.fixture
async def bench():
    made = Bench()
    yield made
    made.suspects.stop()


async def test_suspects_start_one_at_a_time(bench):
    """X11: else a death would accuse two."""
    assert [START, WAIT, WAIT] == [bench.ask(n, suspect=True) for n in (1, 2, 3)]
    assert [2, 3] == bench.aside()
    bench.ended(2)
    assert [] == bench.back, "it isn't the one that runs"
    bench.ended(1)
    assert [3, 2] == bench.back, "each is put before the queue's head: so the first is first again"
    assert [] == bench.aside()
    assert [START, WAIT] == [bench.ask(n, suspect=True) for n in (2, 3)]


async def test_one_may_be_asked_for_twice(bench):
    """It stays the one that runs."""
    assert [START, START, WAIT] == [bench.ask(n, suspect=True) for n in (1, 1, 2)]


async def test_what_is_recorded_but_no_suspect_goes_beside_it(bench):
    """X11, E19: nobody has accused it."""
    assert START == bench.ask(1, suspect=True)
    bench.in_flight = True
    assert [START] * 3 == [bench.ask(n) for n in (2, 3, 4)]


async def test_nothing_starts_while_no_record_can_be_written(bench):
    """X11."""
    bench.failing = True
    assert [WAIT] * 3 == [bench.ask(1), bench.ask(2, suspect=True), bench.ask(3, last=True)]
    bench.failing = False
    bench.suspects.bring_back()
    assert [3, 2, 1] == bench.back
    assert [START] * 2 == [bench.ask(1), bench.ask(3, last=True)], "neither was the last one while it waited"


class TestLastAttempt:
    """Of a suspect that the next death would bury."""

    async def test_it_waits_for_what_is_recorded_and_in_flight(self, bench):
        """X11: that may be the cause, and would make it look guilty. No other enters meanwhile."""
        bench.in_flight = True
        assert [WAIT] * 3 == [bench.ask(1, last=True), bench.ask(2), bench.ask(3, suspect=True)]
        assert [2, 3, 1] == bench.aside()
        bench.in_flight = False
        bench.suspects.emptied()
        assert [1] == bench.back
        assert WAIT == bench.ask(4)
        assert START == bench.ask(1, last=True)
        bench.in_flight = True  # that is itself
        assert [WAIT] * 2 == [bench.ask(5), bench.ask(6, last=True)]
        bench.ended(1)
        assert [1, 6, 5, 4, 3, 2] == bench.back
        assert [START, START] == [bench.ask(2), bench.ask(3, suspect=True)]

    async def test_alone_it_starts_at_once(self, bench):
        """E19."""
        assert START == bench.ask(1, last=True)

    async def test_it_waits_behind_another_suspect_without_keeping_others_out(self, bench):
        """X11: it isn't its turn yet."""
        assert [START, WAIT, START] == [bench.ask(1, suspect=True), bench.ask(2, last=True), bench.ask(3)]

    async def test_it_waits_for_ack_wait_and_a_second_at_the_most(self, bench):
        """X11, L: what runs may never end; by then it would have been given up."""
        bench.in_flight, bench.queue.ack_wait = True, 30 * SECOND
        assert WAIT == bench.ask(1, last=True)
        bench.now = 31 * SECOND - 1
        assert WAIT == bench.ask(1, last=True)
        bench.now = 31 * SECOND
        assert START == bench.ask(1, last=True)
        assert WAIT == bench.ask(2)

    async def test_it_comes_back_by_itself_when_that_is_over(self, bench):
        """L."""
        bench.in_flight = True
        assert WAIT == bench.ask(1, last=True)
        await until(lambda: bench.back)
        assert [1] == bench.back
        bench.now = now_ns()
        assert START == bench.ask(1, last=True)

    async def test_the_others_come_back_if_nobody_chooses_it_then(self, bench):
        """L: its topic may have been paused just then, and for ever."""
        bench.in_flight = True
        assert [WAIT] * 3 == [bench.ask(1, last=True), bench.ask(2), bench.ask(3)]
        bench.in_flight = False
        bench.suspects.emptied()
        assert [1] == bench.back
        await until(lambda: len(bench.back) == 3)
        assert [1, 3, 2] == bench.back
        assert [START] * 2 == [bench.ask(2), bench.ask(3)]
        bench.in_flight = True
        assert WAIT == bench.ask(1, last=True), "it begins anew"

    async def test_it_keeps_its_place_while_it_runs(self, bench):
        """X11: however long that is; the alarm is for one that isn't chosen."""
        bench.in_flight = True
        assert [WAIT] * 2 == [bench.ask(1, last=True), bench.ask(2)]
        bench.in_flight = False
        bench.suspects.emptied()
        assert START == bench.ask(1, last=True)
        bench.suspects._rung()
        assert [1] == bench.back
        assert WAIT == bench.ask(3)

    async def test_its_lane_may_be_handed_over_while_it_waits(self, bench):
        """Z1, L: the next owner has it; the others here go on."""
        bench.in_flight = True
        other = Lane()
        assert WAIT == bench.ask(1, last=True)
        place = MessageRef(other, 7)
        assert WAIT == bench.suspects.may_start(bench.queue, place, suspect=False, last=False, now=0)
        bench.lane.generation += 1
        bench.suspects.forget_stale()
        assert [7] == bench.back
        assert [] == bench.aside()
        assert START == bench.ask(2)


async def test_what_is_void_is_forgotten(bench):
    """Z1: its lane was handed over or replaced."""
    bench.failing = True
    assert [WAIT] * 2 == [bench.ask(1), bench.ask(2)]
    bench.lane.generation += 1
    assert [] == bench.aside()
    bench.suspects.forget_stale()
    bench.suspects.bring_back()
    assert [] == bench.back


async def test_beyond_a_bound_queues_are_laid_down(bench):
    """M: what would be set aside stays in its queue, and the queue comes back with the others."""
    bench.failing = True
    assert [WAIT] * MOST_ASIDE == [bench.ask(n) for n in range(MOST_ASIDE)]
    assert bench.queue not in bench.suspended
    assert [STAY] * 3 == [bench.ask(n) for n in range(MOST_ASIDE, MOST_ASIDE + 3)]
    assert bench.queue in bench.suspended
    assert MOST_ASIDE == len(bench.aside())
    other = Queue()
    assert other not in bench.suspended
    bench.suspects.bring_back()
    assert [*range(MOST_ASIDE)] == bench.back[::-1]
    assert [bench.queue] == bench.resumed
    assert bench.queue not in bench.suspended
