"""All feeds together never have more bytes on their way than the budget, and each gets its turn."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.store.jetstream.byte_budget import FeedBudget


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
        self.budget.return_turn()

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
    budget.return_turn()
    assert "live again" == begun[-1]


def test_while_they_are_held_backlogs_go_on_by_small_turns():
    """Z6: none of them stands still while partitions move, and none takes what the moves need."""
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


def test_a_small_turn_is_given_when_there_is_room_and_after_those_who_are_not_patient():
    budget, begun = FeedBudget(1, 1 << 20), []

    def start(name, wants=True):
        return lambda: wants and (begun.append(name) or True)

    for number in range(budget.turns // budget.turn):
        budget.ask(start(number))
    full = list(begun)
    budget.hold()
    budget.ask(start("given up", wants=False), patient=True)
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
