"""Silent projects aren't sampled: their measurements are as if they were sampled in each interval (X7, W)."""

from operator import add

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.scheduler.interface import QuotaUse
from evenlane.engine.core.stats.flow_counts import FlowCounts
from evenlane.engine.core.stats.forecast import LONGEST, Sample, SampleHistory
from evenlane.engine.node.services.quota_demand import QueueDemand, QuotaDemand

SECOND = 1_000_000_000
START = Sample(0, FlowCounts())
APART = st.integers(SECOND, 5 * SECOND)
COUNTS = st.tuples(*[st.integers(0, 50)] * 3)
MEASURED = st.lists(st.tuples(st.integers(1, 8 * SECOND), COUNTS), min_size=1, max_size=50)
"""Each: ns since the previous one, and the messages counted meanwhile."""


class EverySample:
    """A history that keeps all samples, and takes samples during a rest: the oracle."""

    def __init__(self, apart):
        self.apart, self.samples = apart, []

    def add(self, sample):
        if not self.samples or sample.at >= self.samples[-1].at + self.apart:
            self.samples.append(sample)

    def rested(self, until):
        while self.samples[-1].at + self.apart <= until:
            last = self.samples[-1]
            self.add(Sample(last.at + self.apart, last.counts))

    def before(self, now):
        recent = [each for each in self.samples if each.at >= now - LONGEST]
        return recent[0] if recent and recent[0].at <= now - self.apart else None


def measured(measurements, last=START):
    for gap, counts in measurements:
        last = Sample(last.at + gap, FlowCounts(*map(add, last.counts, counts)))
        yield last


def both(apart, samples):
    histories = SampleHistory(apart), EverySample(apart)
    for history in histories:
        for sample in samples:
            history.add(sample)
    return histories


@given(APART, MEASURED, st.integers(0, LONGEST), MEASURED)
def test_short_rest_equals_sampling(apart, earlier, rest, later):
    """X7: during the rest, and later."""
    samples = list(measured(earlier))
    history, oracle = both(apart, samples)
    until = oracle.samples[-1].at + rest
    history.note_rest(until)
    oracle.rested(until)
    for sample in measured(later, samples[-1]._replace(at=max(until, samples[-1].at))):
        assert oracle.before(sample.at) == history.find_before(sample.at)
        history.add(sample)
        oracle.add(sample)


@given(APART, MEASURED, st.integers(LONGEST, 1_000 * SECOND), st.data())
def test_long_rest_equals_sampling_within_one_interval(apart, earlier, rest, data):
    """X7: with the same counters. The times of samples in an interval are unknown."""
    history, oracle = both(apart, list(measured(earlier)))
    until = oracle.samples[-1].at + rest
    now = until + data.draw(st.integers(0, LONGEST - 2 * apart))
    history.note_rest(until)
    oracle.rested(until)
    found, expected = history.find_before(now), oracle.before(now)
    assert expected[1:] == found[1:]
    assert apart > abs(expected.at - found.at)


USED = st.builds(QuotaUse, st.integers(0, 1_000), st.booleans(), st.booleans())


@given(
    st.tuples(st.floats(0.01, 1_000.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    st.integers(0, 500),
    st.integers(0, 400),
    st.lists(st.tuples(st.integers(1, 3 * SECOND), USED), min_size=1, max_size=5),
)
def test_demand_after_a_rest_equals_sampling_each_second(rules, spent, seconds, later):
    """W: at its first message, and later."""
    sampled, released = QuotaDemand(), QuotaDemand()

    def want(demand, used, at):
        return demand.want("acme", QueueDemand(used, *rules), at, lambda: (10, 150.0))

    for demand in (sampled, released):
        for at in (0, SECOND):
            want(demand, QuotaUse(spent, has=False, waits=False), at)
        assert demand.is_at_rest("acme")
    until = (1 + seconds) * SECOND
    for at in range(2 * SECOND, until + 1, SECOND):
        want(sampled, QuotaUse(spent, has=False, waits=False), at)
    released.note_rest("acme", until)
    at = until
    for gap, used in later:
        at, spent = at + gap, spent + used.spent
        expected, found = (want(each, used._replace(spent=spent), at) for each in (sampled, released))
        assert expected == found
