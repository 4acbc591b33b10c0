"""Start-time fair queueing against a trace, checked interval by interval, and against max-min fair shares."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.priority.fair import OVERHEAD, UNIT, Flow, Line, VirtualTime
from tests.oracles.examples import examples
from tests.oracles.fairness import Trace
from tests.oracles.maxmin import poured

MS = 1_000_000
weights = st.sampled_from([1.0, 2.0, 3.0, 100.0, 10_000.0])
services = st.sampled_from([0, 1_000, MS, 1_000 * MS]) | st.integers(0, 10 * MS)


def tag(flow):
    """The start tag with the corrections that aren't applied yet."""
    return flow.start + flow.owed * flow.scale


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
        self.line.charged(flow)
        self.trace.longest[name] = max(self.trace.longest[name], charge)
        self.running.append((name, service(name)))
        self.most[name] = max(self.most[name], flow.running)
        return name

    def finish(self):
        name, service = self.running.pop(0)
        flow = self.flows[name]
        self.virtual.correct(flow, service, 1)
        if flow.start < flow.noted:
            self.line.fell(flow)
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


@given(st.lists(services, min_size=2, max_size=20))
@examples(50)
def test_batch_is_charged_as_its_single_messages(times):
    virtual, one, batch = VirtualTime(), Flow(), Flow()
    for service in times:
        virtual.charge(one, one)
        virtual.correct(one, service, 1)
    for _ in times:
        virtual.charge(batch, batch)
    virtual.correct(batch, sum(times), len(times))
    assert tag(one) == pytest.approx(tag(batch), rel=1e-6, abs=1_000)
    assert (0, 0) == (batch.running, batch.charged)


def test_small_charges_count_after_50_years_of_load():
    """Tags are whole numbers: a float would round a short message of a heavy weight to zero by then."""
    virtual, lone = VirtualTime(), Flow()
    lone.weigh(0.01)
    virtual.charge(lone, lone)
    virtual.correct(lone, 50 * 365 * 86_400 * 10**9, 1)
    virtual.charge(lone, lone)
    heavy = Flow()
    heavy.weigh(10_000.0)
    virtual.catch_up(heavy)
    starts = []
    for _ in range(10):
        starts.append(heavy.start)
        virtual.charge(heavy, heavy)
        virtual.correct(heavy, 20_000, 1)
    assert sorted(set(starts)) == starts


def test_new_weight_takes_effect_at_once():
    """X4: charges ahead of the other flows are converted to the new weight."""
    virtual, flow, other = VirtualTime(), Flow(), Flow()
    for each in (flow, other):
        each.weigh(1.0)
        virtual.catch_up(each)
    for _ in range(5):
        virtual.charge(flow, other)
    ahead = flow.start - virtual.now
    assert ahead > 0
    virtual.reweigh(flow, 50.0)
    assert (50.0, ahead // 50) == (flow.weight, flow.start - virtual.now)
    virtual.reweigh(flow, 1.0)
    assert abs(flow.start - virtual.now - ahead) <= 50
    behind = other.start - virtual.now
    virtual.reweigh(other, 3.0)
    assert behind == other.start - virtual.now, "a flow that isn't ahead was converted"


@given(st.lists(st.sampled_from([1.0, 2.0, 50.0]), min_size=1, max_size=3), st.integers(1, 60), services)
@examples(100)
def test_messages_in_flight_over_weight_changes_are_corrected_by_the_highest(weights, running, service):
    """X4: otherwise many small corrections at a weight of 50 would be worth whole messages at a weight of 1."""
    virtual, flow = VirtualTime(), Flow()
    flow.weigh(50.0)
    for _ in range(running):
        virtual.charge(flow, flow)
    charged = flow.charged
    for weight in weights:
        virtual.reweigh(flow, weight)
    before = tag(flow)
    for _ in range(running):
        virtual.correct(flow, service, 1)
    took = running * (service + OVERHEAD)
    assert tag(flow) - before == pytest.approx((took - charged) * UNIT / 50, rel=1e-6, abs=running)
    assert (0, 0) == (flow.running, flow.previous)
    cost, start = virtual.charge(flow, flow), tag(flow)
    virtual.correct(flow, service + MS, 1)
    assert tag(flow) - start == pytest.approx((service + MS + OVERHEAD - cost) * flow.scale, rel=1e-6, abs=2)


def begun(count, weight, mean=100 * MS):
    """A flow with `count` messages in flight, each charged `mean`."""
    virtual, flow = VirtualTime(), Flow()
    flow.weigh(weight)
    flow.mean = float(mean)
    for _ in range(count):
        virtual.charge(flow, flow)
    return virtual, flow


def test_pending_correction_counts_by_the_weight_of_its_message():
    """X4."""
    virtual, flow = begun(2, 50.0)
    virtual.correct(flow, 40 * MS, 1)
    virtual.correct(flow, 100 * MS, 1)
    owed, start, ahead = flow.owed, flow.start, flow.start - virtual.now
    assert owed
    virtual.reweigh(flow, 1.0)
    assert (0, virtual.now + (ahead + int(owed * UNIT / 50)) * 50) == (flow.owed, pytest.approx(flow.start, abs=50))
    assert start < flow.start


def test_refund_applies_to_the_messages_charged_last():
    """E10: eight messages charged at weight 1 cost nothing, although eight of weight 50 still run."""
    virtual, flow = begun(8, 50.0)
    virtual.reweigh(flow, 1.0)
    before = flow.start
    for _ in range(8):
        virtual.charge(flow, flow)
    virtual.refund(flow, 8)
    assert (8, before) == (flow.previous, pytest.approx(flow.start, abs=8))
    virtual.refund(flow, 2)
    assert (6, (before - flow.start) * 50 / UNIT) == (flow.previous, pytest.approx(200 * MS, rel=1e-6))


def test_batch_is_corrected_by_the_mean_weight_of_its_messages():
    """X4: one of 64 began at weight 50."""
    virtual, flow = begun(1, 50.0, 10 * MS)
    virtual.reweigh(flow, 1.0)
    for _ in range(63):
        virtual.charge(flow, flow)
    before = flow.start
    virtual.correct(flow, int(flow.charged) + 6_400 * MS, 64)
    assert (flow.start - before) / UNIT == pytest.approx(6_400 * MS, rel=0.02)
    assert flow.previous == 0


def test_old_weight_fades_while_weights_change_faster_than_messages_end():
    """W: as where a lent share of the quota moves each second, and handlers take longer."""
    virtual, flow = begun(8, 50.0)
    virtual.reweigh(flow, 1.0)
    for step in range(100):
        virtual.reweigh(flow, 1.0 + step % 2 / 10)
        virtual.correct(flow, 100 * MS, 1)
        virtual.charge(flow, flow)
    assert UNIT / flow.previous_scale == pytest.approx(1.05, abs=0.06)


def test_stale_entries_of_a_line_are_removed():
    """M: however often a flow moves forward."""
    line, virtual, flows = Line(), VirtualTime(), [Flow() for _ in range(10)]
    for flow in flows:
        line.enter(flow)
    for step in range(10_000):
        flow = line.first()
        virtual.charge(flow, flow)
        line.charged(flow)
        virtual.refund(flow, 1)
        line.enter(flow)
        if step % 100 == 0:
            virtual.charge(flow, flow)
            line.charged(flow)
    assert len(line.entries) < 200
    left = 0
    while (flow := line.first()) is not None:
        flow.line = None
        left += 1
    assert left == 10
