"""Start-time fair queueing against a trace, checked interval by interval, and against max-min fair shares."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.priority.fair import OVERHEAD, Flow, Line, VirtualTime
from tests.oracles.examples import examples
from tests.oracles.fairness import Trace
from tests.oracles.maxmin import poured

MS = 1_000_000
weights = st.sampled_from([1.0, 2.0, 3.0, 100.0, 10_000.0])
services = st.sampled_from([0, 1_000, MS, 1_000 * MS]) | st.integers(0, 10 * MS)


class Server:
    """Slots that are busy while any flow wants one. Messages end in the order of their starts."""

    def __init__(self, weights, slots=1, fair=True):
        self.line, self.virtual, self.slots = Line(), VirtualTime(fair=fair), slots
        self.flows = {name: Flow() for name in weights}
        self.names = {id(flow): name for name, flow in self.flows.items()}
        for name, weight in weights.items():
            self.flows[name].weigh(weight)
        self.trace = Trace(weights)
        self.running, self.most = [], dict.fromkeys(weights, 0)
        self.got = dict.fromkeys(weights, 0.0)

    def wants(self, *names):
        for name in names:
            self.virtual.catch_up(self.flows[name])
            self.line.enter(self.flows[name])
            self.trace.begin(name)

    def ends(self, *names):
        for name in names:
            self.flows[name].line = None
            self.trace.end(name)

    def serve(self, service):
        """Start one message, which takes `service(name)` ns, once a slot is free, and return its flow's name."""
        if len(self.running) == self.slots:
            self.finish()
        flow = self.line.first()
        if flow is None:
            return None
        name = self.names[id(flow)]
        charge = self.virtual.charge(flow, flow)
        self.line.on_charge(flow)
        self.trace.longest[name] = max(self.trace.longest[name], charge)
        self.running.append((name, service(name)))
        self.most[name] = max(self.most[name], flow.running)
        return name

    def finish(self):
        name, service = self.running.pop(0)
        flow = self.flows[name]
        self.virtual.correct(flow, service, 1)
        if flow.start < flow.noted:
            self.line.on_fall(flow)
        self.got[name] += service + OVERHEAD
        self.trace.serve(name, service + OVERHEAD)


def check_bound(server, one, other):
    """Check twice the bound of Goyal et al. A tenant's l is the number of its messages in flight plus one (a correction
    of less than a message waits), times its longest message or charge. A wrong charge may lower a tag as far as it may
    raise it, hence the factor of two.
    """
    bound = sum(server.trace.bound(each, each, server.most[each] + 1) / 2 for each in (one, other))
    assert server.trace.gap(one, other) <= 2 * bound * (1 + 1e-6) + 2


@given(st.lists(weights, min_size=2, max_size=4), st.lists(st.integers(1, 1_000 * MS), min_size=4, max_size=4))
@examples(100)
def test_unfairness_is_bounded_in_every_interval_with_exact_estimates(shares, each):
    """V: Goyal, Vin, Cheng 1996, theorem 1."""
    names = "abcd"[: len(shares)]
    server, lengths = Server(dict(zip(names, shares, strict=True))), dict(zip("abcd", each, strict=True))
    for name in names:
        server.flows[name].mean = lengths[name] + OVERHEAD
    server.wants(*names)
    for _ in range(300):
        server.serve(lengths.get)
    for one, other in combinations(names, 2):
        assert server.trace.gap(one, other) <= server.trace.bound(one, other) * (1 + 1e-6) + 2


@given(st.lists(weights, min_size=2, max_size=4), st.lists(services, min_size=1, max_size=40), st.integers(1, 4))
@examples(150)
def test_unfairness_is_bounded_by_twice_that_with_wrong_estimates(shares, times, stride):
    """V."""
    names = "abcd"[: len(shares)]
    server = Server(dict(zip(names, shares, strict=True)))
    server.wants(*names)
    turns = iter(range(0, 300 * stride, stride))
    for _ in range(300):
        server.serve(lambda _: times[next(turns) % len(times)])
    for one, other in combinations(names, 2):
        check_bound(server, one, other)


@given(
    st.lists(weights, min_size=2, max_size=4),
    st.lists(services, min_size=4, max_size=4),
    st.integers(1, 16),
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 30)), max_size=12),
)
@examples(150)
def test_bound_holds_with_many_slots_and_idle_tenants(shares, each, slots, changes):
    """V: tenants have several messages in flight, and come and go."""
    names = "abcd"[: len(shares)]
    server = Server(dict(zip(names, shares, strict=True)), slots)
    server.wants(*names)
    wanting, lengths = set(names), dict(zip("abcd", each, strict=True))
    for name, wants, count in changes:
        if name in names and wants != (name in wanting):
            (server.wants if wants else server.ends)(name)
            wanting ^= {name}
        for _ in range(count):
            server.serve(lengths.get)
    for one, other in combinations(names, 2):
        check_bound(server, one, other)


@given(st.lists(weights, min_size=2, max_size=5), st.lists(services, min_size=5, max_size=5))
@examples(30)
def test_long_run_shares_are_max_min_fair(shares, each):
    names = "abcde"[: len(shares)]
    server = Server(dict(zip(names, shares, strict=True)), slots=4)
    server.wants(*names)
    lengths = dict(zip("abcde", each, strict=True))
    for _ in range(3_000):
        server.serve(lengths.get)
    total = sum(server.got.values())
    fair = dict(zip(names, poured(total, shares, [total] * len(names)), strict=True))
    for name in names:  # the tolerance is the work that may be in flight
        off = max(server.trace.bound(name, other, 5) * server.flows[name].weight for other in names)
        assert abs(fair[name] - server.got[name]) <= off + 1


def test_flows_of_equal_weight_take_turns():
    server = Server(dict.fromkeys("abc", 1.0))
    server.wants("a", "b", "c")
    assert "abc" * 5 == "".join(server.serve(lambda _: MS) for _ in range(15))


@pytest.mark.parametrize("weight", [1.0, 7.0, 10_000.0])
def test_flows_take_turns_without_fairness(weight):
    server = Server({"a": weight, "b": 1.0, "c": 1.0}, fair=False)
    server.wants("a", "b", "c")
    order = [server.serve(lambda name: MS if name == "a" else 9 * MS) for _ in range(30)]
    assert [10, 10, 10] == [order.count(name) for name in "abc"]
