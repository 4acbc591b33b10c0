"""A topic's quota over its groups: guarantees, borrowing, cancelled grants (E3, E4, E10)."""

from fractions import Fraction
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.quota.rates.gcra import NEVER, SECOND
from evenlane.quota.rates.groups import Group
from tests.oracles.examples import examples
from tests.oracles.limiter import excess
from tests.oracles.maxmin import poured
from tests.unit.quota.rates.topics import MS, Topic


@pytest.mark.parametrize("borrow", [True, False])
def test_busy_groups_get_their_guarantees(borrow):
    """E3: 100 QPS over 4 groups are 25 each, with and without borrowing."""
    topic = Topic(100, 4, borrow=borrow)
    topic.wants(0, 1, 2, 3)
    topic.run(10)
    assert [250] * 4 == pytest.approx(topic.counts(), abs=2)


@pytest.mark.parametrize(
    ("qps", "groups", "borrow", "rate"),
    [(100, 4, True, 100), (100, 4, False, 25), (1_000, 10, True, 150), (1_000, 10, False, 100), (0.5, 2, True, 0.5)],
)
def test_single_busy_group_gets_its_maximum(qps, groups, borrow, rate):
    """E3: min(qps, max_group_qps) with borrowing, its guarantee without."""
    topic = Topic(qps, groups, borrow=borrow)
    topic.wants(1)
    topic.run(1_000 / rate)
    # The cap never delays a guarantee: at the start, one is added to the other.
    assert 1_000 == pytest.approx(topic.counts()[1], abs=3)


@given(
    st.sampled_from([40, 100, 600]),
    st.integers(2, 6),
    st.lists(st.floats(0, 3), min_size=6, max_size=6),
)
@examples(40)
def test_borrowing_is_max_min_fair(qps, groups, factors):
    """E19: no group gets less than its demand while another borrows more, and the whole quota is used."""
    share = qps / groups
    demands = [min(150.0, factor * share) for factor in factors[:groups]]
    topic = Topic(qps, groups)
    seconds, step = 20, 100 * MS
    credit = [0.0] * groups
    for _ in range(seconds * SECOND // step):
        for number, demand in enumerate(demands):
            credit[number] = min(credit[number] + demand * step / SECOND, 2 + demand * 2 * step / SECOND)
            if credit[number] >= 1:
                topic.wants(number)
        end = topic.now + step
        while topic.now < end:
            number = topic.take()
            if number is None:
                topic.now = min(end, max(topic.quota.wakes_at, topic.now + 1))
                continue
            credit[number] -= 1
            if credit[number] < 1:
                topic.ends(number)
    fair = poured(qps, [1.0] * groups, demands)
    for got, due in zip(topic.counts(), fair, strict=True):
        assert due * seconds * 0.93 - 4 <= got


def test_loan_costs_no_guarantee_and_ends_at_once():
    """X1."""
    topic = Topic(100, 4)
    topic.wants(0)
    topic.run(5)
    topic.wants(1, 2, 3)
    assert [1, 2, 3] == sorted(topic.run(0.0301)[:3]), "groups within their guarantee come first"
    before = topic.counts()
    topic.run(4)
    assert [100] * 4 == pytest.approx([now - then for now, then in zip(topic.counts(), before, strict=True)], abs=2)


def test_waking_group_waits_for_one_interval_of_the_topic():
    topic = Topic(100, 10)
    topic.wants(*range(9))
    topic.run(3)
    topic.wants(9)
    woken_at = topic.now
    topic.run(1)
    assert topic.got[9][0] - woken_at <= 10 * MS


numbers = st.integers(0, 4)
ops = st.lists(
    st.one_of(
        st.tuples(st.just("wants"), numbers),
        st.tuples(st.just("ends"), numbers),
        st.tuples(st.just("take"), st.integers(1, 8)),
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.just("more"), numbers),
        st.tuples(st.just("pass"), st.sampled_from([0, 1, MS, 7 * MS, 50 * MS, SECOND, 300 * SECOND])),
        st.tuples(st.just("sleep"), numbers),
        st.tuples(st.just("rules"), st.integers(0, 5)),
    ),
    max_size=60,
)
RULES = [
    {"qps": 100, "groups": 5},
    {"qps": 100, "groups": 5, "borrow": False},
    {"qps": 700, "groups": 5, "burst": 12},
    {"qps": 0.01, "groups": 2},
    {"qps": 30, "groups": 1, "burst": 4},
    {"qps": 1_000_000, "groups": 6_667},
]


class Checked(Topic):
    """Checks each decision against the buckets. The order in which they are kept must never matter."""

    def take(self):
        number = super().take()
        ready = [group for group in self.groups if group.ready]
        if number is None:
            assert self.quota.at > self.now or all(self._blocked(group) for group in ready)
            self._check_wakes(ready)
            return None
        group, topic_at, at, cap_at = self.last
        borrowed = at > self.now
        assert group.ready
        assert topic_at <= self.now
        if borrowed:
            assert cap_at <= self.now
            assert at == group.at, "a loan moves the guarantee's bucket"
            inside = [each for each in ready if each is not group and each.at <= self.now]
            assert [] == inside, "a borrower came before a group within its guarantee"
        return number

    def _blocked(self, group):
        may_borrow = self.borrows and group.cap_at <= self.now
        return group.at > self.now and not may_borrow

    def _check_wakes(self, ready):
        """Check that `wakes_at` is neither past nor late."""
        assert self.quota.wakes_at > self.now
        first = [min(group.at, group.cap_at) if self.borrows else group.at for group in ready]
        assert self.quota.wakes_at <= max(self.quota.at, min(first, default=NEVER))


@given(st.integers(0, 5), ops)
@examples(200)
def test_each_decision_follows_from_the_buckets(rules, steps):
    topic = after(rules, [])
    for number, (kind, value) in enumerate(steps):
        if kind == "ask":
            check_cancelled_grants(after(rules, steps[:number]), after(rules, steps[:number]), count=1 + value)
        apply(topic, kind, value)


def after(rules, steps):
    """A new topic to which these steps were applied."""
    topic = Checked(**RULES[rules])
    topic.groups += [Group() for _ in range(5 - len(topic.groups))]
    topic.got = [[] for _ in topic.groups]
    for kind, value in steps:
        apply(topic, kind, value)
    return topic


def apply(topic, kind, value):
    if kind in {"wants", "ends"}:
        getattr(topic, kind)(value)
    elif kind == "pass":
        topic.now += value
    elif kind == "rules":
        topic.configure(**RULES[value])
    elif kind == "take":
        while value and topic.take() is not None:
            value -= 1
    elif kind == "sleep":
        if topic.take() is None and topic.quota.wakes_at < NEVER:
            topic.now = topic.quota.wakes_at
            topic.take()
    elif kind == "ask":
        ask(topic, 1 + value)
    else:
        take_one_more_of_a_batch(topic, topic.groups[value])


def ask(topic, count):
    """Cancel each grant."""
    for _ in range(count):
        topic.quota.choose(topic.now)


def check_cancelled_grants(topic, other, count):
    """E10: cancelled grants don't change the following messages and their instants. Both topics begin in one state."""
    ask(other, count)
    assert following(topic) == following(other)


def following(topic):
    """The instants and groups of the next messages."""
    order = []
    for _ in range(6):
        while (number := topic.take()) is not None:
            order.append((topic.now, number))
        topic.now = min(topic.quota.wakes_at, topic.now + 10 * SECOND)
    return order


def take_one_more_of_a_batch(topic, group):
    if group.ready and topic.quota.may_admit(group, topic.now):
        siblings = [each for each in topic.groups if each.ready and each is not group and each.at <= topic.now]
        assert topic.quota.at <= topic.now
        assert group.at <= topic.now or (group.cap_at <= topic.now and not siblings)
        topic.quota.spend(group, topic.now)


@given(
    st.floats(0.01, 1_000),
    st.integers(1, 6),
    st.integers(1, 12),
    st.booleans(),
    st.lists(st.tuples(st.sets(st.integers(0, 5)), st.floats(0, 30)), min_size=1, max_size=8),
)
@examples(60)
def test_no_window_of_the_topic_or_a_group_exceeds_its_rate(qps, groups, burst, borrow, phases):
    """Q; E3 for groups: the cap limits loans but not the guarantee, so each may add its allowance once."""
    topic = Topic(qps, groups, burst, borrow, most=max(150.0, qps / groups))
    for busy, intervals in phases:
        topic.ends(*range(groups))
        topic.wants(*(number for number in busy if number < groups))
        topic.run(intervals / qps)
    allowed = max(burst - 1, 1) + 1
    assert excess(due(sorted(chain.from_iterable(topic.got)), qps)) <= allowed + 1e-6
    most = min(qps, topic.most) if borrow and groups > 1 else qps / groups
    if most < qps:
        allowed = 2 * (max(-(-burst // groups) - 1, 1) + 1)
    for times in topic.got:
        assert excess(due(times, most)) <= allowed + 1e-6


def due(times, rate):
    return [Fraction(rate) * at / SECOND for at in times]


def test_each_of_800_groups_gets_its_share():
    """E3."""
    topic = Topic(800, 800)
    topic.wants(*range(800))
    topic.run(3)
    assert 2_400 == pytest.approx(sum(topic.counts()), abs=2)
    assert {2, 3, 4} >= set(topic.counts())


def test_topic_new_to_a_node_has_no_burst():
    """Q, Z1: its previous owner may have used the burst just now. After a second it has saved up its own."""
    topic = Topic(100.0, 1, burst=50)
    topic.wants(0)
    assert 1 == len(topic.run(0.009))
    topic.ends(0)
    topic.now += SECOND
    topic.wants(0)
    assert 50 <= len(topic.run(0.001))
    topic.now += SECOND
    topic.quota.rest()
    topic.now += SECOND
    topic.configure(100.0, 1, burst=50)
    assert 1 == len(topic.run(0.009)), "a burst after the topic's return"
