"""E17: the circuit breaker of an endpoint: growing pauses, and one probe at a time."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evenlane.engine.node.push.breaker import Breaker, BreakerRules, BreakerState

RULES = BreakerRules(threshold=3, first=10, factor=2, most=45)


def opened():
    breaker = Breaker(RULES)
    for _ in range(3):
        breaker.note_failure(breaker.begin(0), 0)
    return breaker


def test_breaker_opens_after_consecutive_failures():
    breaker = Breaker(RULES)
    for ends in ("failed", "failed", "succeeded", "failed", "failed"):
        token = breaker.begin(0)
        breaker.note_success(token) if ends == "succeeded" else breaker.note_failure(token, 0)
    assert BreakerState.CLOSED is breaker.state
    breaker.note_failure(breaker.begin(0), 0)
    assert (BreakerState.OPEN, 10) == (breaker.state, breaker.wait(0))


def test_no_request_begins_during_the_pause():
    breaker = opened()
    assert (1, 0) == (breaker.wait(9), breaker.wait(10))
    with pytest.raises(ValueError, match="ask wait"):
        breaker.begin(9)


def test_probe_that_succeeds_closes_the_breaker():
    breaker = opened()
    probe = breaker.begin(10)
    assert (BreakerState.HALF_OPEN, 10) == (breaker.state, breaker.wait(10))
    breaker.note_success(probe)
    assert (BreakerState.CLOSED, 0) == (breaker.state, breaker.wait(10))
    for _ in range(2):  # the count starts over
        breaker.note_failure(breaker.begin(10), 10)
    assert BreakerState.CLOSED is breaker.state


def test_pauses_grow_to_a_limit_and_restart_after_a_success():
    breaker, now, pauses = opened(), 0, []
    for _ in range(4):
        now += breaker.wait(now)
        breaker.note_failure(breaker.begin(now), now)
        pauses.append(breaker.wait(now))
    assert [20, 40, 45, 45] == pauses
    now += 45
    breaker.note_success(breaker.begin(now))
    for _ in range(3):
        breaker.note_failure(breaker.begin(now), now)
    assert 10 == breaker.wait(now)


def test_abandoned_probe_lets_the_next_one_begin():
    breaker = opened()
    breaker.abandon(breaker.begin(10))
    assert (BreakerState.OPEN, 0) == (breaker.state, breaker.wait(10))


def test_requests_that_began_before_the_breaker_opened_are_ignored():
    breaker = Breaker(RULES)
    old = [breaker.begin(0) for _ in range(5)]
    for token in old[:3]:
        breaker.note_failure(token, 0)
    breaker.note_success(old[3])
    breaker.note_failure(old[4], 9)
    assert (BreakerState.OPEN, 10) == (breaker.state, breaker.wait(0))
    probe = breaker.begin(10)
    breaker.note_success(old[3])
    assert BreakerState.HALF_OPEN is breaker.state
    breaker.note_success(probe)
    breaker.note_failure(probe, 11)
    assert BreakerState.CLOSED is breaker.state


class Machine(RuleBasedStateMachine):
    """Random events, with the invariants of the breaker."""

    def __init__(self):
        super().__init__()
        self.breaker, self.now = Breaker(RULES), 0
        self.under_way: list[tuple[int, BreakerState]] = []  # token, the state it began under
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
        assert before is BreakerState.CLOSED or self.now >= self.open_until
        self.under_way.append((token, self.breaker.state))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 1_000), ends=st.sampled_from(["note_success", "note_failure", "abandon"]))
    def ends(self, which, ends):
        token, began = self.under_way.pop(which % len(self.under_way))
        before = self.breaker.state
        if ends == "note_failure":
            self.breaker.note_failure(token, self.now)
        else:
            getattr(self.breaker, ends)(token)
        after = self.breaker.state
        if began is not before:
            assert before is after  # requests that began under another state are ignored
        if after is BreakerState.OPEN and before is not BreakerState.OPEN and ends == "note_failure":
            pause = self.breaker.wait(self.now)
            grown = min(RULES.most, self.pause * RULES.factor) if before is BreakerState.HALF_OPEN else RULES.first
            assert grown == pause
            self.pause, self.open_until = pause, self.now + pause
        if before is BreakerState.HALF_OPEN and began is BreakerState.HALF_OPEN:
            assert {"note_success": BreakerState.CLOSED}.get(ends, BreakerState.OPEN) is after

    @invariant()
    def at_most_one_probe(self):
        current = [began for _, began in self.under_way].count(BreakerState.HALF_OPEN)
        assert current <= 1
        assert (self.breaker.state is BreakerState.HALF_OPEN) == (current == 1)

    @invariant()
    def pause_is_bounded(self):
        assert self.breaker.wait(self.now) <= RULES.most


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40)
