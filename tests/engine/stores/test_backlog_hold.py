"""Backlogs come slowly while partitions come (Z6), and as before when all are there."""

from engine.stores.jetstream.backlog_hold import BacklogHold
from tests.wait import until


class Budget:
    """What a hold does to it."""

    def __init__(self):
        self.held, self.holds, self.passed = False, 0, 0

    def hold(self):
        assert not self.held
        self.held, self.holds = True, self.holds + 1

    def release(self):
        assert self.held
        self.held = False

    def pass_one(self):
        assert self.held
        self.passed += 1


async def test_a_feed_that_is_made_slows_backlogs_for_a_moment():
    budget = Budget()
    hold = BacklogHold(budget)
    hold.made()
    hold.made()
    assert budget.held
    await until(lambda: not budget.held)
    assert budget.holds == 1
    assert budget.passed > 0


async def test_backlogs_come_slowly_until_all_that_is_expected_is_there():
    """Z6: partitions come one after another, further apart than feeds that are made together."""
    budget = Budget()
    hold = BacklogHold(budget, expected_s=60)
    hold.expect(more=True)
    hold.made()
    await until(lambda: budget.passed >= 12)  # longer than the quiet after a feed
    assert budget.held
    hold.expect(more=False)
    await until(lambda: not budget.held)


async def test_what_is_expected_and_never_comes_slows_nobody_for_ever():
    budget = Budget()
    hold = BacklogHold(budget, expected_s=0.1)
    hold.expect(more=True)
    await until(lambda: not budget.held)
    hold.made()
    assert budget.held
    await until(lambda: not budget.held)
