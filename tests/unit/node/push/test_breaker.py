"""E17: an endpoint that fails is left alone, ever longer, and tried with one request at a time."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evenlane.engine.node.push.breaker import Breaker, Rules, State

RULES = Rules(threshold=3, first=10, factor=2, most=45)


def opened():
    breaker = Breaker(RULES)
    for _ in range(3):
        breaker.failed(breaker.begin(0), 0)
    return breaker


def test_failures_in_a_row_open_it():
    breaker = Breaker(RULES)
    for ends in ("failed", "failed", "succeeded", "failed", "failed"):
        token = breaker.begin(0)
        breaker.succeeded(token) if ends == "succeeded" else breaker.failed(token, 0)
    assert State.CLOSED is breaker.state
    breaker.failed(breaker.begin(0), 0)
    assert (State.OPEN, 10) == (breaker.state, breaker.wait(0))


def test_nothing_begins_before_its_pause_is_over():
    breaker = opened()
    assert (1, 0) == (breaker.wait(9), breaker.wait(10))
    with pytest.raises(ValueError, match="ask wait"):
        breaker.begin(9)


def test_one_probe_decides():
    breaker = opened()
    probe = breaker.begin(10)
    assert (State.HALF_OPEN, 10) == (breaker.state, breaker.wait(10))
    breaker.succeeded(probe)
    assert (State.CLOSED, 0) == (breaker.state, breaker.wait(10))
    for _ in range(2):  # it counts anew
        breaker.failed(breaker.begin(10), 10)
    assert State.CLOSED is breaker.state


def test_pauses_grow_up_to_the_most_and_begin_small_again():
    breaker, now, pauses = opened(), 0, []
    for _ in range(4):
        now += breaker.wait(now)
        breaker.failed(breaker.begin(now), now)
        pauses.append(breaker.wait(now))
    assert [20, 40, 45, 45] == pauses
    now += 45
    breaker.succeeded(breaker.begin(now))
    for _ in range(3):
        breaker.failed(breaker.begin(now), now)
    assert 10 == breaker.wait(now)


def test_a_probe_without_a_verdict_lets_the_next_one_begin():
    breaker = opened()
    breaker.abandoned(breaker.begin(10))
    assert (State.OPEN, 0) == (breaker.state, breaker.wait(10))


def test_what_began_before_it_opened_decides_nothing():
    breaker = Breaker(RULES)
    old = [breaker.begin(0) for _ in range(5)]
    for token in old[:3]:
        breaker.failed(token, 0)
    breaker.succeeded(old[3])
    breaker.failed(old[4], 9)
    assert (State.OPEN, 10) == (breaker.state, breaker.wait(0))
    probe = breaker.begin(10)
    breaker.succeeded(old[3])
    assert State.HALF_OPEN is breaker.state
    breaker.succeeded(probe)
    breaker.failed(probe, 11)
    assert State.CLOSED is breaker.state


class Machine(RuleBasedStateMachine):
    """Any order of events, against what they must never lead to."""

    def __init__(self):
        super().__init__()
        self.breaker, self.now = Breaker(RULES), 0
        self.under_way: list[tuple[int, State]] = []  # token, the state it began under
        self.in_a_row = 0  # failures of those that began under the present closed state
        self.open_until, self.pause = 0, 0

    @rule(by=st.integers(0, 30))
    def time_passes(self, by):
        self.now += by

    @rule()
    def asks(self):
        wait = self.breaker.wait(self.now)
        if wait:
            assert 0 < wait <= RULES.most
            return
        before = self.breaker.state
        token = self.breaker.begin(self.now)
        assert before is State.CLOSED or self.now >= self.open_until
        self.under_way.append((token, self.breaker.state))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 1_000), ends=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def ends(self, which, ends):
        token, began = self.under_way.pop(which % len(self.under_way))
        before = self.breaker.state
        if ends == "failed":
            self.breaker.failed(token, self.now)
        else:
            getattr(self.breaker, ends)(token)
        after = self.breaker.state
        if began is not before:
            assert before is after  # what began under another state decides nothing
        if after is State.OPEN and before is not State.OPEN and ends == "failed":
            pause = self.breaker.wait(self.now)
            grown = min(RULES.most, self.pause * RULES.factor) if before is State.HALF_OPEN else RULES.first
            assert grown == pause
            self.pause, self.open_until = pause, self.now + pause
        if before is State.HALF_OPEN and began is State.HALF_OPEN:
            assert {"succeeded": State.CLOSED}.get(ends, State.OPEN) is after

    @invariant()
    def at_most_one_probe(self):
        current = [began for _, began in self.under_way].count(State.HALF_OPEN)
        assert current <= 1
        assert (self.breaker.state is State.HALF_OPEN) == (current == 1)

    @invariant()
    def it_is_never_shut_for_good(self):
        assert self.breaker.wait(self.now) <= RULES.most


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40)
