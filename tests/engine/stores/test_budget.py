"""All feeds together never have more bytes on their way than the budget, and each gets its turn."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.stores.jetstream.budget import FeedBudget


class Asking(RuleBasedStateMachine):
    @initialize(total=st.integers(1, 64 << 20), largest=st.integers(1, 8 << 20), feeds=st.integers(1, 256))
    def begin(self, total, largest, feeds):
        self.budget = FeedBudget(total, largest)
        for _ in range(feeds):
            self.budget.join()
        self.asked: list[int] = []  # in the order in which they asked
        self.running: list[int] = []
        self.gone: set[int] = set()
        self.number = 0

    def _start(self, number):
        def start() -> bool:
            assert self.asked[0] == number, "out of turn"
            self.asked.pop(0)
            if number in self.gone:
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
    def end_of_a_turn(self, which):
        self.running.pop(which % len(self.running))
        self.budget.give_back()

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 1000))
    def one_that_waits_goes_away(self, which):
        self.gone.add(self.asked[which % len(self.asked)])

    @invariant()
    def no_more_is_on_its_way_than_the_budget(self):
        budget = self.budget
        small = budget.small * budget._feeds
        assert len(self.running) * budget.turn + small <= max(budget.total, budget.total // 2 + (4096 * 256))

    @invariant()
    def a_turn_takes_the_largest_message(self):
        assert self.budget.turn >= self.budget.largest

    @invariant()
    def nobody_waits_while_there_is_room(self):
        room = self.budget.turns - len(self.running) * self.budget.turn
        assert not self.asked or room < self.budget.turn

    def teardown(self):
        while getattr(self, "running", None):
            self.end_of_a_turn(0)
        if hasattr(self, "asked"):
            assert [] == self.asked


TestAsking = Asking.TestCase


def test_a_backlog_waits_for_all_others_and_while_it_is_held():
    """Z6: what is put now comes in before what has waited for long."""
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
    budget.give_back()
    assert "live again" == begun[-1]
