"""Start-time fair queueing against a trace that is looked at interval by interval, and against max-min fair shares."""

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
    """With the corrections that stand over."""
    return flow.start + flow.owed * flow.scale


class Server:
    """Slots that are always busy while anybody wants; messages end in the order in which they began."""

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
        """Hand out one message (taking `service(name)` ns) once a slot is free; who got it."""
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
    """l is what a tenant has in flight and one message more (a correction of less than a message waits), times its
    longest message, or charge for one. Where the charge turns out to have been wrong a tag may fall by as much as it
    may rise: twice the bound of Goyal et al.
    """
    bound = sum(server.trace.bound(each, each, server.most[each] + 1) / 2 for each in (one, other))
    assert server.trace.gap(one, other) <= 2 * bound * (1 + 1e-6) + 2


@given(st.lists(weights, min_size=2, max_size=4), st.lists(st.integers(1, 1_000 * MS), min_size=4, max_size=4))
@examples(100)
def test_with_right_estimates_no_interval_is_less_fair_than_the_bound(shares, each):
    """Goyal, Vin, Cheng 1996, theorem 1."""
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
def test_with_wrong_ones_no_interval_is_less_fair_than_twice_that(shares, times, stride):
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
def test_slots_and_idleness_change_nothing(shares, each, slots, changes):
    """Several messages in flight of each, tenants that come and go."""
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
def test_in_the_long_run_each_gets_its_max_min_fair_share(shares, each):
    names = "abcde"[: len(shares)]
    server = Server(dict(zip(names, shares, strict=True)), slots=4)
    server.wants(*names)
    lengths = dict(zip("abcde", each, strict=True))
    for _ in range(3_000):
        server.serve(lengths.get)
    total = sum(server.got.values())
    fair = dict(zip(names, poured(total, shares, [total] * len(names)), strict=True))
    for name in names:  # nobody is further off than what may be in flight
        off = max(server.trace.bound(name, other, 5) * server.flows[name].weight for other in names)
        assert abs(fair[name] - server.got[name]) <= off + 1


def test_weights_of_1_to_10_000():
    server = Server({"small": 1.0, "big": 10_000.0})
    server.wants("small", "big")
    order = [server.serve(lambda _: MS) for _ in range(30_003)]
    assert 3 == pytest.approx(order.count("small"), abs=1)


def test_a_handler_that_takes_a_thousand_times_its_estimate_is_paid_for():
    """K8s API priority and fairness corrects at the end, too."""
    server = Server({"steady": 1.0, "odd": 1.0})
    server.wants("steady", "odd")
    for _ in range(200):
        server.serve(lambda _: MS)
    before = dict(server.got)
    lengths = iter([1_000 * MS])
    while server.got["steady"] - before["steady"] < 990 * MS:
        name = server.serve(lambda name: next(lengths, MS) if name == "odd" else MS)
    assert "steady" == name
    assert 1_000 * MS == pytest.approx(server.got["odd"] - before["odd"], rel=0.02)


def test_idleness_saves_nothing_up():
    server = Server({"late": 1.0, "busy": 1.0})
    server.wants("busy")
    for _ in range(500):
        server.serve(lambda _: MS)
    server.wants("late")
    order = [server.serve(lambda _: MS) for _ in range(40)]
    assert 20 == pytest.approx(order.count("late"), abs=2)


def test_who_was_alone_doesnt_pay_for_it():
    server = Server({"other": 1.0, "busy": 1.0})
    server.wants("busy", "other")
    server.ends("other")
    for _ in range(500):
        server.serve(lambda _: MS)
    server.wants("other")
    order = [server.serve(lambda _: MS) for _ in range(40)]
    assert 20 == pytest.approx(order.count("busy"), abs=2)


def test_equals_take_turns():
    server = Server(dict.fromkeys("abc", 1.0))
    server.wants("a", "b", "c")
    assert "abc" * 5 == "".join(server.serve(lambda _: MS) for _ in range(15))


@pytest.mark.parametrize("weight", [1.0, 7.0, 10_000.0])
def test_without_fairness_all_come_in_turn(weight):
    server = Server({"a": weight, "b": 1.0, "c": 1.0}, fair=False)
    server.wants("a", "b", "c")
    order = [server.serve(lambda name: MS if name == "a" else 9 * MS) for _ in range(30)]
    assert [10, 10, 10] == [order.count(name) for name in "abc"]


def paid(flow):
    """ns per weight, with what waits for the next charge."""
    return flow.start / UNIT + flow.owed / flow.weight


@given(st.lists(services, min_size=2, max_size=20))
@examples(50)
def test_a_batch_is_charged_what_its_messages_take_together(times):
    virtual, one, batch = VirtualTime(), Flow(), Flow()
    for service in times:
        virtual.charge(one, one)
        virtual.correct(one, service, 1)
    for _ in times:
        virtual.charge(batch, batch)
    virtual.correct(batch, sum(times), len(times))
    assert tag(one) == pytest.approx(tag(batch), rel=1e-6, abs=1_000)
    assert (0, 0) == (batch.running, batch.charged)


def test_a_year_of_the_lightest_load_leaves_small_charges_their_size():
    """Tags are whole numbers: a float would round a short message of a heavy tenant to nothing by then."""
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


def test_a_new_weight_acts_at_once():
    """X4: what was charged ahead of the others at the old weight counts by the new one."""
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
    assert behind == other.start - virtual.now, "nothing was charged ahead"


@given(st.lists(st.sampled_from([1.0, 2.0, 50.0]), min_size=1, max_size=3), st.integers(1, 60), services)
@examples(100)
def test_what_ran_when_the_weight_changed_is_corrected_by_the_highest(weights, running, service):
    """X4: 40 messages of a tenant of weight 50 that took 20 ms less than expected are not three messages of one of
    weight 1.
    """
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
    assert tag(flow) - start == pytest.approx((service + MS + OVERHEAD - cost) * flow.scale, rel=1e-6, abs=2), "as ever"


def begun(count, weight, mean=100 * MS):
    """A flow with so many messages in flight, each charged `mean`."""
    virtual, flow = VirtualTime(), Flow()
    flow.weigh(weight)
    flow.mean = float(mean)
    for _ in range(count):
        virtual.charge(flow, flow)
    return virtual, flow


def test_what_stands_over_counts_by_the_weight_under_which_it_was_served():
    virtual, flow = begun(2, 50.0)
    virtual.correct(flow, 40 * MS, 1)
    virtual.correct(flow, 100 * MS, 1)
    owed, start, ahead = flow.owed, flow.start, flow.start - virtual.now
    assert owed
    virtual.reweigh(flow, 1.0)
    assert (0, virtual.now + (ahead + int(owed * UNIT / 50)) * 50) == (flow.owed, pytest.approx(flow.start, abs=50))
    assert start < flow.start


def test_what_is_undone_began_last():
    """Q of undo: eight that were chosen at weight 1 cost nothing, though eight of weight 50 still run."""
    virtual, flow = begun(8, 50.0)
    virtual.reweigh(flow, 1.0)
    before = flow.start
    for _ in range(8):
        virtual.charge(flow, flow)
    virtual.refund(flow, 8)
    assert (8, before) == (flow.previous, pytest.approx(flow.start, abs=8))
    virtual.refund(flow, 2)
    assert (6, (before - flow.start) * 50 / UNIT) == (flow.previous, pytest.approx(200 * MS, rel=1e-6))


def test_a_batch_is_corrected_by_the_mean_of_what_it_may_be():
    """One of 64 began at weight 50."""
    virtual, flow = begun(1, 50.0, 10 * MS)
    virtual.reweigh(flow, 1.0)
    for _ in range(63):
        virtual.charge(flow, flow)
    before = flow.start
    virtual.correct(flow, int(flow.charged) + 6_400 * MS, 64)
    assert (flow.start - before) / UNIT == pytest.approx(6_400 * MS, rel=0.02)
    assert flow.previous == 0


def test_an_old_weight_is_forgotten_though_more_run_than_end_between_changes():
    """W: as where a part that is lent moves each second, and handlers take longer."""
    virtual, flow = begun(8, 50.0)
    virtual.reweigh(flow, 1.0)
    for step in range(100):
        virtual.reweigh(flow, 1.0 + step % 2 / 10)
        virtual.correct(flow, 100 * MS, 1)
        virtual.charge(flow, flow)
    assert UNIT / flow.previous_scale == pytest.approx(1.05, abs=0.06)


def test_entries_that_do_not_count_are_thrown_away():
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
