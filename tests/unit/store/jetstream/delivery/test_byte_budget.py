"""All feeds together never have more bytes in transit than the budget, and each gets its turn."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget


class BudgetMachine(RuleBasedStateMachine):
    @initialize(total=st.integers(1, 64 << 20), largest=st.integers(1, 8 << 20), feeds=st.integers(1, 256))
    def begin(self, total, largest, feeds):
        self.budget, self.feeds = FeedBudget(total, largest), feeds
        for _ in range(feeds):
            self.budget.join()
        self.asked: list[int] = []  # in the order of their requests
        self.running: list[int] = []
        self.closed: set[int] = set()
        self.number = 0

    def _start(self, number):
        def start() -> bool:
            assert self.asked[0] == number, "out of turn"
            self.asked.pop(0)
            if number in self.closed:
                return False
            self.running.append(number)
            return True

        return start

    @rule()
    def ask(self):
        self.number += 1
        self.asked.append(self.number)
        self.budget.ask(self._start(self.number))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 1000))
    def end_turn(self, which):
        self.running.pop(which % len(self.running))
        self.budget.return_turn()

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 1000))
    def close_waiting_feed(self, which):
        self.closed.add(self.asked[which % len(self.asked)])

    @invariant()
    def bytes_in_transit_are_within_budget(self):
        budget = self.budget
        small = budget.small * self.feeds
        assert len(self.running) * budget.turn + small <= max(budget.total, budget.total // 2 + (4096 * 256))

    @invariant()
    def turn_fits_largest_message(self):
        assert self.budget.turn >= self.budget.largest

    @invariant()
    def no_feed_waits_while_there_is_room(self):
        room = self.budget.turns - len(self.running) * self.budget.turn
        assert not self.asked or room < self.budget.turn

    def teardown(self):
        while getattr(self, "running", None):
            self.end_turn(0)
        if hasattr(self, "asked"):
            assert [] == self.asked


TestFeedBudget = BudgetMachine.TestCase


def test_backlog_waits_for_other_feeds_and_while_held():
    """Z6: new messages are read before a backlog."""
    budget = FeedBudget(64 << 20, 1 << 20)
    begun = []

    def start(name):
        return lambda: begun.append(name) or True

    budget.hold()
    budget.ask(start("backlog"), patient=True)
    budget.ask(start("live"))
    assert ["live"] == begun
    budget.release()
    assert ["live", "backlog"] == begun
    for name in ("more backlog", "still more"):
        budget.ask(start(name), patient=True)
    budget.ask(start("live again"))
    budget.return_turn()
    assert "live again" == begun[-1]


def test_held_backlogs_progress_by_small_turns():
    """Z6: each backlog makes progress while partitions move, without taking what the moves need."""
    budget, begun = FeedBudget(64 << 20, 1 << 20), []

    def start(name):
        return lambda: begun.append((name, budget.patient_turn)) or True

    large = budget.patient_turn
    budget.hold()
    for name in ("one", "two", "three"):
        budget.ask(start(name), patient=True)
    budget.pass_one()
    budget.return_turn()
    assert ["one"] == [name for name, _ in begun]
    budget.pass_one()
    budget.release()
    assert [("one", budget.held_turn), ("two", budget.held_turn), ("three", large)] == begun
    assert budget.held_turn < large
    budget.pass_one()
    assert 3 == len(begun)


def test_small_turn_waits_for_room_and_for_live_feeds():
    budget, begun = FeedBudget(1, 1 << 20), []

    def start(name, wants=True):
        return lambda: wants and (begun.append(name) or True)

    for number in range(budget.turns // budget.turn):
        budget.ask(start(number))
    full = list(begun)
    budget.hold()
    budget.ask(start("closed", wants=False), patient=True)
    budget.ask(start("backlog"), patient=True)
    budget.ask(start("more backlog"), patient=True)
    budget.pass_one()
    budget.ask(start("live"))
    assert full == begun
    budget.return_turn()
    assert [*full, "live"] == begun
    budget.return_turn()
    assert [*full, "live", "backlog"] == begun
    budget.return_turn()
    assert [*full, "live", "backlog"] == begun
