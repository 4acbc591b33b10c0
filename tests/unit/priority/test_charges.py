"""The charges of start-time fair queueing: batches, weights that change, refunds, and stale entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.priority.fair import OVERHEAD, UNIT, Flow, Line, VirtualTime
from tests.oracles.examples import examples

MS = 1_000_000
weights = st.sampled_from([1.0, 2.0, 3.0, 100.0, 10_000.0])
services = st.sampled_from([0, 1_000, MS, 1_000 * MS]) | st.integers(0, 10 * MS)


def tag(flow):
    """The start tag with the corrections that aren't applied yet."""
    return flow.start + flow.owed * flow.scale


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
        line.on_charge(flow)
        virtual.refund(flow, 1)
        line.enter(flow)
        if step % 100 == 0:
            virtual.charge(flow, flow)
            line.on_charge(flow)
    assert len(line.entries) < 200
    left = 0
    while (flow := line.first()) is not None:
        flow.line = None
        left += 1
    assert left == 10
