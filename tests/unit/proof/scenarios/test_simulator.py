"""Simulator with every scheduler: properties of any trace of any load."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.proof.arms import fifo, product, round_robin, without_headroom
from evenlane.engine.proof.baselines.schedulers import PlainScheduler
from evenlane.engine.proof.load import arrivals as a
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.engine.proof.load.placement import place_on_one
from evenlane.engine.proof.load.trace import NEVER, Trace
from evenlane.engine.proof.simulator.node import SimNode, SpinError
from evenlane.engine.proof.simulator.simulator import Simulator, simulate
from tests.oracles.examples import examples

SCHEDULERS = [product, without_headroom, round_robin, fifo]
MS = a.MILLISECOND


@st.composite
def loads(draw):
    """Draw up to four tenants, from slow and borrowing to unlimited, and up to 60 messages, in bursts and apart."""
    tenants = [
        tenant(
            f"t{n}",
            qps=draw(st.sampled_from([0.5, 20, 300])),
            groups=3,
            burst=draw(st.sampled_from([1, 5])),
            weight=draw(st.sampled_from([1, 4])),
            borrow=draw(st.booleans()),
            concurrency=draw(st.sampled_from([None, 1])),
            ageing=draw(st.sampled_from([None, 0.25])),
        )
        for n in range(draw(st.integers(1, 4)))
    ]
    arrival = st.builds(
        Arrival,
        at=st.integers(0, 40).map(lambda ms: ms * MS),
        tenant=st.integers(0, len(tenants) - 1),
        group=st.integers(0, 2),
        band=st.integers(0, 2),
        service=st.sampled_from([0, 1, 10 * MS, 300 * MS]),
    )
    return Load.of(tenants, draw(st.lists(arrival, max_size=60)), 60_000 * MS)


class Watched(SimNode):
    """Checks after each step that no slot is idle while the scheduler has a message."""

    def start_handlers(self, now):
        super().start_handlers(now)
        if self.free:
            assert None is start_next(self.scheduler, now)


@pytest.mark.parametrize("make", SCHEDULERS)
def test_messages_run_once_after_their_put_within_the_slots(make):
    """W: no slot is idle while an eligible message waits."""

    @examples(40)
    @given(loads(), st.integers(1, 5))
    def holds(load, slots):
        node = Watched(0, make, slots, Trace(load))
        trace = Simulator(load, [node], place_on_one(load.cluster_config)).run()
        running = Counter()
        for n, each in enumerate(load):
            started, ended = trace.started[n], trace.ended[n]
            if started == NEVER:
                assert NEVER == ended
                continue
            assert each.at <= started == ended - each.service
            running[started] += 1
            running[ended] -= 1
        level = 0
        for at in sorted(running):
            level += running[at]
            assert 0 <= level <= slots, at

    holds()


@pytest.mark.parametrize("make", [round_robin, fifo])
def test_schedulers_without_rules_serve_all_messages(make):
    @examples(40)
    @given(loads(), st.integers(1, 5))
    def holds(load, slots):
        assert all(map(simulate(load, make, slots).was_handled, range(len(load))))

    holds()


def test_messages_of_a_queue_start_in_order():
    @examples(40)
    @given(loads(), st.integers(1, 5))
    def holds(load, slots):
        trace, last = simulate(load, product, slots), {}
        for n, each in enumerate(load):
            queue = (each.tenant, each.group, each.band)
            if trace.started[n] != NEVER:
                assert last.get(queue, 0) <= trace.started[n]
                last[queue] = trace.started[n]

    holds()


def small(**spec):
    """Return a load of two bursts of one tenant, and a message of another."""
    tenants = [tenant("acme", qps=100, groups=1, **spec), tenant("other", qps=100, groups=1)]
    come = [Arrival(at, 0, 0, band, 45 * MS) for at in (0, 20 * MS) for band in (2, 0, 0)]
    return Load.of(tenants, [*come, Arrival(5 * MS, 1, 0, 1, 45 * MS)], 200 * MS)


def test_same_load_gives_the_same_trace():
    rng = a.stream_of(7, "load")
    groups = a.chooser(rng, a.zipf(5))
    come = [Arrival(at, n % 3, next(groups), n % 3, 9 * MS) for n, at in enumerate(a.poisson(rng, 900, 0, a.SECOND))]
    load = Load.of([tenant(f"t{n}", qps=200, groups=5) for n in range(3)], come, a.SECOND)
    assert len(come) > 800
    assert list(simulate(load, product, 8).lines()) == list(simulate(load, product, 8).lines())


def test_trace_is_written_as_lines():
    assert [
        "0.000 acme/0/low put",
        "0.000 acme/0/high put",
        "0.000 acme/0/high put",
        "0.000 acme/0/high start",
        "0.005 other/0/mid put",
        "0.005 other/0/mid start",
        "0.010 acme/0/high start",
        "0.020 acme/0/low put",
        "0.020 acme/0/high put",
        "0.020 acme/0/high put",
        "0.045 acme/0/high end",
        "0.045 acme/0/high start",
    ] == list(simulate(small(), without_headroom, 3).lines())[:12]


def test_unserved_message_has_no_start():
    trace = simulate(small(state="paused"), product, 3)
    assert {"other/0/mid start"} == {line.split(" ", 1)[1] for line in trace.lines() if line.endswith("start")}


def test_scheduler_that_spins_raises():
    class Spinning(PlainScheduler):
        def wake_at(self):
            return 20 * MS

    with pytest.raises(SpinError, match="20000000 ns"):
        simulate(small(), lambda _slots, _arrived_at: Spinning(), 1_000)


def test_node_wakes_at_the_schedulers_time():
    """At 10 QPS, without any event in between."""
    come = [Arrival(0, 0, 0, 1, 0) for _ in range(3)]
    load = Load.of([tenant("acme", qps=10, groups=1)], come, a.SECOND)
    assert [0, 100 * MS, 200 * MS] == sorted(simulate(load, product, 5).started)
