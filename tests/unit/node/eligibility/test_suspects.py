"""The rules by which recorded messages may start (X11), one at a time, without a node or a store."""

import asyncio

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.node.eligibility.suspects import Suspects, Verdict
from tests.support.node.world import SECOND
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

START, WAIT, STAY = Verdict
FAR = 1 << 62
MOST_ASIDE = 1_024


def new_lane():
    return Lane(LaneId("lanes", 0), 1)


def new_queue():
    return Queue("acme", 0, "mid", 1, 0)


class Bench:
    """Plays the gate, the queues and the caller: `in_flight` and `failing` are the gate's answers, `now` is the
    caller's time. `back` has the sequences returned to the queue, `resumed` the resumed queues.
    """

    def __init__(self):
        self.in_flight = self.is_failing = False
        self.back, self.resumed = [], []
        self.lane, self.queue, self.now = new_lane(), new_queue(), 0
        self.suspended = {}
        self.suspects = Suspects(self, self, self.again)

    @property
    def is_busy(self):
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
        return self.suspects.judge(self.queue, self.place(sequence), suspect=suspect or last, last=last, now=self.now)

    def ended(self, sequence):
        self.suspects.on_end(self.place(sequence))

    def aside(self):
        return [place.sequence for place in self.suspects.list_waiting(self.queue)]


@pytest.fixture
async def bench():
    made = Bench()
    yield made
    made.suspects.stop()


async def test_suspects_start_one_at_a_time(bench):
    """X11: otherwise a death would accuse two."""
    assert [START, WAIT, WAIT] == [bench.ask(n, suspect=True) for n in (1, 2, 3)]
    assert [2, 3] == bench.aside()
    bench.ended(2)
    assert [] == bench.back, "2 isn't the running suspect"
    bench.ended(1)
    assert [3, 2] == bench.back, "each goes before the queue's head, so 2 is first again"
    assert [] == bench.aside()
    assert [START, WAIT] == [bench.ask(n, suspect=True) for n in (2, 3)]


async def test_running_suspect_may_start_again(bench):
    assert [START, START, WAIT] == [bench.ask(n, suspect=True) for n in (1, 1, 2)]


async def test_recorded_messages_start_while_a_suspect_runs(bench):
    """X11, E19: they aren't suspects."""
    assert START == bench.ask(1, suspect=True)
    bench.in_flight = True
    assert [START] * 3 == [bench.ask(n) for n in (2, 3, 4)]


async def test_no_message_starts_while_records_cannot_be_written(bench):
    """X11."""
    bench.is_failing = True
    assert [WAIT] * 3 == [bench.ask(1), bench.ask(2, suspect=True), bench.ask(3, last=True)]
    bench.is_failing = False
    bench.suspects.bring_back()
    assert [3, 2, 1] == bench.back
    assert [START] * 2 == [bench.ask(1), bench.ask(3, last=True)], "3 didn't claim the gate while it waited"


class TestLastAttempt:
    """A suspect that the next death would dead-letter."""

    async def test_suspect_waits_for_recorded_messages_in_flight(self, bench):
        """X11: one of them might kill the process, and make it look guilty. No other message starts meanwhile."""
        bench.in_flight = True
        assert [WAIT] * 3 == [bench.ask(1, last=True), bench.ask(2), bench.ask(3, suspect=True)]
        assert [2, 3, 1] == bench.aside()
        bench.in_flight = False
        bench.suspects.on_recorded_gone()
        assert [1] == bench.back
        assert WAIT == bench.ask(4)
        assert START == bench.ask(1, last=True)
        bench.in_flight = True  # the suspect itself
        assert [WAIT] * 2 == [bench.ask(5), bench.ask(6, last=True)]
        bench.ended(1)
        assert [1, 6, 5, 4, 3, 2] == bench.back
        assert [START, START] == [bench.ask(2), bench.ask(3, suspect=True)]

    async def test_suspect_starts_at_once_if_alone(self, bench):
        """E19."""
        assert START == bench.ask(1, last=True)

    async def test_suspect_behind_another_one_blocks_no_message(self, bench):
        """X11: its turn hasn't come."""
        assert [START, WAIT, START] == [bench.ask(1, suspect=True), bench.ask(2, last=True), bench.ask(3)]

    async def test_suspect_waits_at_most_ack_wait_and_a_second(self, bench):
        """X11, L: a handler may never end; by then it has timed out."""
        bench.in_flight, bench.queue.rules = True, QueueRules(ack_wait=30 * SECOND)
        assert WAIT == bench.ask(1, last=True)
        bench.now = 31 * SECOND - 1
        assert WAIT == bench.ask(1, last=True)
        bench.now = 31 * SECOND
        assert START == bench.ask(1, last=True)
        assert WAIT == bench.ask(2)

    @in_virtual_time
    async def test_suspect_returns_to_its_queue_after_that_time(self):
        """L."""
        bench = Bench()
        bench.in_flight = True
        assert WAIT == bench.ask(1, last=True)
        await until(lambda: bench.back)
        assert [1] == bench.back
        bench.now = FAR
        assert START == bench.ask(1, last=True)

    @in_virtual_time
    async def test_others_return_if_the_suspect_is_not_chosen(self):
        """L: its topic may have been paused."""
        bench = Bench()
        bench.in_flight = True
        assert [WAIT] * 3 == [bench.ask(1, last=True), bench.ask(2), bench.ask(3)]
        bench.in_flight = False
        bench.suspects.on_recorded_gone()
        assert [1] == bench.back
        await until(lambda: len(bench.back) == 3)
        assert [1, 3, 2] == bench.back
        assert [START] * 2 == [bench.ask(2), bench.ask(3)]
        bench.in_flight = True
        assert WAIT == bench.ask(1, last=True), "its wait starts over"
        bench.suspects.stop()

    @in_virtual_time
    async def test_running_suspect_keeps_its_turn(self):
        """X11: however long it runs. Only a suspect that isn't chosen within a second loses its turn."""
        bench = Bench()
        bench.in_flight = True
        assert [WAIT] * 2 == [bench.ask(1, last=True), bench.ask(2)]
        bench.in_flight = False
        bench.suspects.on_recorded_gone()
        assert START == bench.ask(1, last=True)
        await asyncio.sleep(2)
        assert [1] == bench.back
        assert WAIT == bench.ask(3)

    async def test_handoff_of_its_lane_ends_the_wait_of_the_others(self, bench):
        """Z1, L: the next owner has the suspect."""
        bench.in_flight = True
        other = new_lane()
        assert WAIT == bench.ask(1, last=True)
        place = MessageRef(other, 7)
        assert WAIT == bench.suspects.judge(bench.queue, place, suspect=False, last=False, now=0)
        bench.lane.generation += 1
        bench.suspects.discard_stale()
        assert [7] == bench.back
        assert [] == bench.aside()
        assert START == bench.ask(2)


async def test_stale_messages_are_dropped(bench):
    """Z1: their lane was handed over or replaced."""
    bench.is_failing = True
    assert [WAIT] * 2 == [bench.ask(1), bench.ask(2)]
    bench.lane.generation += 1
    assert [] == bench.aside()
    bench.suspects.discard_stale()
    bench.suspects.bring_back()
    assert [] == bench.back


async def test_queues_are_suspended_beyond_a_bound(bench):
    """M: further messages stay in their queue, which resumes with the others."""
    bench.is_failing = True
    assert [WAIT] * MOST_ASIDE == [bench.ask(n) for n in range(MOST_ASIDE)]
    assert bench.queue not in bench.suspended
    assert [STAY] * 3 == [bench.ask(n) for n in range(MOST_ASIDE, MOST_ASIDE + 3)]
    assert bench.queue in bench.suspended
    assert MOST_ASIDE == len(bench.aside())
    other = new_queue()
    assert other not in bench.suspended
    bench.suspects.bring_back()
    assert [*range(MOST_ASIDE)] == bench.back[::-1]
    assert [bench.queue] == bench.resumed
    assert bench.queue not in bench.suspended
