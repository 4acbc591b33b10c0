"""Backlogs are read slowly while a node takes over partitions (Z6), then at full speed. Time is a number here."""

import pytest

from evenlane.engine.store.jetstream.backlog_throttle import BacklogThrottle

QUIET_S, EXPECTED_S, STEP_S = 0.4, 6.0, 0.05


class Timer:
    def __init__(self, at, call):
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self):
        self.is_cancelled = True


class ThrottledFeeds:
    """A throttle with its budget and its event loop."""

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
        """Seconds until backlogs are read at full speed."""
        began = self.now
        while self.held:
            self.run(STEP_S)
        return pytest.approx(self.now - began, abs=2 * STEP_S)


@pytest.fixture
def world():
    return ThrottledFeeds()


def test_new_feed_slows_backlogs_for_a_moment(world):
    world.backlogs.on_created()
    world.run(QUIET_S / 2)
    world.backlogs.on_created()
    assert world.held_for() == QUIET_S
    assert world.passed > 0


def test_many_new_feeds_slow_backlogs_for_bounded_time(world):
    """A stream that breaks repeatedly doesn't stop backlogs."""
    for _ in range(30):
        world.backlogs.on_created()
        world.run(0.09)
    assert world.held_for() == 3.0 - 30 * 0.09


def test_backlogs_are_slow_until_expected_partitions_are_open(world):
    """Z6: partitions open one after another, further apart than feeds made together; the last one has a pause, too."""
    world.backlogs.expect(more=True)
    for _ in range(5):
        world.run(0.8)
        world.backlogs.on_created()
    assert world.held
    assert world.passed == pytest.approx(4.0 / STEP_S, abs=2)
    world.backlogs.expect(more=False)
    assert world.held_for() == QUIET_S


def test_unmet_expectation_slows_backlogs_for_bounded_time(world):
    """However often it is repeated, as each event of the ring does; then each feed slows backlogs only for a moment."""
    for _ in range(60):
        world.backlogs.expect(more=True)
        world.run(0.1)
    assert world.held_for() == 0
    world.backlogs.expect(more=True)
    assert not world.held
    world.backlogs.on_created()
    assert world.held_for() == QUIET_S
    world.backlogs.expect(more=False)
    world.backlogs.expect(more=True)
    assert world.held_for() == EXPECTED_S


def test_closed_throttle_leaves_no_timer(world):
    world.backlogs.expect(more=True)
    world.backlogs.close()
    world.run(EXPECTED_S)
    assert (0, []) == (world.passed, world.timers)
