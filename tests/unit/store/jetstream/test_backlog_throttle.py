"""Backlogs come slowly while partitions come (Z6), and as before when all are there. Time is a number here."""

import pytest

from evenlane.engine.store.jetstream.backlog_throttle import BacklogThrottle

QUIET_S, EXPECTED_S, STEP_S = 0.4, 6.0, 0.05


class Timer:
    def __init__(self, at, call):
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self):
        self.is_cancelled = True


class ThrottledFeeds:
    """A hold, what it does to its budget, and its loop."""

    def __init__(self):
        self.now, self.timers = 100.0, []
        self.held, self.passed = False, 0
        self.backlogs = BacklogThrottle(self, self)

    def time(self):
        return self.now

    def call_later(self, seconds, call):
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def hold(self):
        assert not self.held
        self.held = True

    def release(self):
        assert self.held
        self.held = False

    def pass_one(self):
        assert self.held
        self.passed += 1

    def run(self, seconds):
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.at <= end]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = timer.at
            if not timer.is_cancelled:
                timer.call()
        self.now = end

    def held_for(self):
        """How long backlogs are still slow."""
        began = self.now
        while self.held:
            self.run(STEP_S)
        return pytest.approx(self.now - began, abs=2 * STEP_S)


@pytest.fixture
def world():
    return ThrottledFeeds()


def test_a_feed_that_is_made_slows_backlogs_for_a_moment(world):
    world.backlogs.made()
    world.run(QUIET_S / 2)
    world.backlogs.made()
    assert world.held_for() == QUIET_S
    assert world.passed > 0


def test_feeds_that_are_made_one_after_another_slow_them_for_a_bounded_time(world):
    """A stream that breaks again and again keeps no backlog waiting."""
    for _ in range(30):
        world.backlogs.made()
        world.run(0.09)
    assert world.held_for() == 3.0 - 30 * 0.09


def test_backlogs_come_slowly_until_every_expected_partition_is_open(world):
    """Z6: they come one after another, further apart than feeds that are made together; the last has its quiet, too."""
    world.backlogs.expect(more=True)
    for _ in range(5):
        world.run(0.8)
        world.backlogs.made()
    assert world.held
    assert world.passed == pytest.approx(4.0 / STEP_S, abs=2)
    world.backlogs.expect(more=False)
    assert world.held_for() == QUIET_S


def test_an_expectation_that_is_never_met_slows_nobody_for_ever(world):
    """However often it is said, as it is with each event of the ring; feeds slow backlogs for their own moment then."""
    for _ in range(60):
        world.backlogs.expect(more=True)
        world.run(0.1)
    assert world.held_for() == 0
    world.backlogs.expect(more=True)
    assert not world.held
    world.backlogs.made()
    assert world.held_for() == QUIET_S
    world.backlogs.expect(more=False)
    world.backlogs.expect(more=True)
    assert world.held_for() == EXPECTED_S


def test_once_it_is_closed_nothing_is_left(world):
    world.backlogs.expect(more=True)
    world.backlogs.close()
    world.run(EXPECTED_S)
    assert (0, []) == (world.passed, world.timers)
